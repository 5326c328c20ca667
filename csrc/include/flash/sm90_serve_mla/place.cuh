// Where what is in shared memory, and which thread this is.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve_mla/parked.cuh"
#include "flash/sm90_serve_mla/config.h"

namespace flash::sm90_serve_mla {

// Halves of a stage, each copied and given back by itself. The right one has what is rotated too.
// Group 0 computes the scores of both, and the left columns of the output.
enum Half : int { kLeft = 0, kRight = 1 };

// A named barrier, for both groups.
constexpr int kConsumers = 1;

// What a warp knows of its tiles, while registers hold the output.
template <HopperMlaKernelConfig kConfig>
struct State {
  sm80_serve::Pieces<kConfig.ampere().serving()> pieces;
  sm80_serve::Piece<kConfig.ampere().serving()> piece;
};

template <HopperMlaKernelConfig kConfig>
struct Place {
  char* memory;
  uint32_t smem = ptx::shared_address(memory);
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(__shfl_sync(0xffffffffu, threadIdx.x / 32, 0));

  FLASH_DEVICE int group() const { return warp / HopperMlaKernelConfig::kGroupWarps; }
  FLASH_DEVICE int group_thread() const { return static_cast<int>(threadIdx.x) % 128; }
  // This thread's first row in a tile; the other is 8 below.
  FLASH_DEVICE int row() const { return warp % HopperMlaKernelConfig::kGroupWarps * 16 + lane / 4; }

  FLASH_DEVICE uint32_t queries() const { return smem; }
  FLASH_DEVICE uint32_t stage(int n) const {
    return smem + kConfig.stages_offset() + n * kConfig.stage_bytes();
  }
  // Of a stage; those behind the last value are what is rotated.
  FLASH_DEVICE uint32_t chunk(int n, int number) const {
    return stage(n) + number * kConfig.chunk_bytes(kConfig.B_c);
  }
  // Of this thread of its group: 16 bytes for each 16 keys, in the order of registers.
  FLASH_DEVICE uint32_t weights() const {
    return smem + kConfig.weights_offset() + group_thread() * 16;
  }
  // Of each row: what its output is multiplied with.
  FLASH_DEVICE float* factors() const {
    return reinterpret_cast<float*>(memory + kConfig.factors_offset());
  }
  // Of each row: 1 / sum of its weights, and its log-sum-exp.
  FLASH_DEVICE float2* ends() const {
    return reinterpret_cast<float2*>(memory + kConfig.ends_offset());
  }
  FLASH_DEVICE State<kConfig>& state() const {
    static_assert(sizeof(State<kConfig>) <= HopperMlaKernelConfig::kStateBytes);
    return *reinterpret_cast<State<kConfig>*>(memory + kConfig.state_offset() +
                                              warp * HopperMlaKernelConfig::kStateBytes);
  }
  FLASH_DEVICE uint32_t* flag() const {
    return reinterpret_cast<uint32_t*>(memory + kConfig.flag_offset());
  }
  FLASH_DEVICE uint32_t full(int n, Half half) const { return barrier(2 * n + half); }
  FLASH_DEVICE uint32_t empty(int n, Half half) const {
    return barrier(2 * (kConfig.n_stages + n) + half);
  }
  // The left group has written weights and factors; the right group has read them.
  FLASH_DEVICE uint32_t weights_told() const { return barrier(4 * kConfig.n_stages); }
  FLASH_DEVICE uint32_t weights_read() const { return barrier(4 * kConfig.n_stages + 1); }
  // The right group has cleared what nobody sees.
  FLASH_DEVICE uint32_t cleared() const { return barrier(4 * kConfig.n_stages + 2); }

 private:
  FLASH_DEVICE uint32_t barrier(int number) const {
    return smem + kConfig.barriers_offset() + 8 * number;
  }
};

// The blocks of a piece.
template <HopperMlaKernelConfig kConfig>
struct Blocks {
  int first;  // its first key
  int n;

  FLASH_DEVICE explicit Blocks(const KeyRange& keys)
      : first(keys.begin / kConfig.B_c * kConfig.B_c),
        n(keys.end > keys.begin ? (keys.end - 1) / kConfig.B_c - keys.begin / kConfig.B_c + 1 : 0) {
  }
};

}  // namespace flash::sm90_serve_mla
