// Where what is in shared memory, and which thread this is.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/sm80_serve_mla/parked.cuh"

namespace flash::sm80_serve_mla {

template <AmpereMlaKernelConfig kConfig>
struct Place {
  char* memory;
  uint32_t smem = ptx::shared_address(memory);
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int warp_row = warp % kConfig.row_warps() * 16;
  int first_column = warp / kConfig.row_warps() * kConfig.slice_keys();  // of the scores

  FLASH_DEVICE uint32_t stage(int n) const {
    return smem + kConfig.q_bytes() + n * kConfig.stage_bytes();
  }
  // Of the scores: which part of the depth this warp multiplies, and what it gives to the other.
  FLASH_DEVICE int part() const { return warp % kConfig.depth_parts(); }
  FLASH_DEVICE float4& given(int by_warp) const {
    return reinterpret_cast<float4*>(memory + kConfig.given_offset())[by_warp * 32 + lane];
  }
  // Where the tile's queries are put, when stage n is free.
  FLASH_DEVICE uint32_t queries(int n) const { return kConfig.keeps_queries() ? stage(n) : smem; }
  FLASH_DEVICE uint32_t weights() const { return smem + kConfig.weights_offset(); }
  FLASH_DEVICE float* stats() const {
    return reinterpret_cast<float*>(memory + kConfig.stats_offset());
  }
  FLASH_DEVICE State<kConfig>& state() const {
    static_assert(sizeof(State<kConfig>) <= AmpereMlaKernelConfig::kStateBytes);
    return *reinterpret_cast<State<kConfig>*>(memory + kConfig.state_offset() +
                                              warp * AmpereMlaKernelConfig::kStateBytes);
  }
  // Of all warps, those that they know (sm80_serve/piece_ring.cuh).
  FLASH_DEVICE char* pieces() const { return memory + kConfig.pieces_offset(); }
  FLASH_DEVICE uint32_t* flag() const {
    return reinterpret_cast<uint32_t*>(memory + kConfig.flag_offset());
  }
};

}  // namespace flash::sm80_serve_mla
