// The stream of keys, whose first elements are the values: blocks of rows, wherever they lie,
// through a ring in shared memory.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm80_serve/keys.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve_mla {

// A row of shared memory is a row of `v`, and behind it one of `k`: what is rotated.
template <AmpereMlaKernelConfig kConfig>
struct LatentStream : sm80_serve::KeyRows<kConfig.dtype, kConfig.warp_keys()> {
  using Rows = sm80_serve::KeyRows<kConfig.dtype, kConfig.warp_keys()>;
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kLanes = 32;
  static constexpr int kValueChunks = kConfig.d_v() / 8;
  static constexpr int kRotatedChunks = AmpereMlaKernelConfig::kRotated / 8;
  static constexpr int kRotatedRows = kLanes / kRotatedChunks;  // at a time
  // With 16 rows it gained nothing, and cost up to 3 % where pieces are short.
  static constexpr bool kLoadsBeforeCopies = kConfig.B_r > 16;
  static_assert(kConfig.warp_keys() % kRotatedRows == 0 && kValueChunks % kLanes == 0);

  uint32_t ring;  // shared address of the first stage

  FLASH_DEVICE LatentStream(const ServeArgs& serve_args, uint32_t first_stage, int warp,
                            int own_lane)
      : Rows(serve_args, warp * kConfig.warp_keys(), own_lane), ring(first_stage) {}

  // Copies the rows that were found to a stage of the ring. What is not read becomes zero: the
  // weight of a value that nobody sees is 0, and must not meet a NaN.
  FLASH_DEVICE void copy_to(int stage) const {
    const uint32_t block = ring + stage * kConfig.stage_bytes();
    uint32_t lane = this->lane;
    ptx::forget(lane);  // places of rows are computed again for each block, and take no registers
    static_for<0, kConfig.warp_keys()>([&](auto row) {
      const char* const from = this->broadcast(this->v_row, row);
      const bool exists = this->rows_read >> row & 1;
      static_for<0, kValueChunks, kLanes>([&](auto first) {
        const int chunk = first + lane;
        this->copy(block + Shared::offset(this->first_key + row, chunk), from, chunk, exists);
      });
    });
    const int chunk = lane % kRotatedChunks;
    static_for<0, kConfig.warp_keys(), kRotatedRows>([&](auto first) {
      const int row = first + lane / kRotatedChunks;
      this->copy(block + Shared::offset(this->first_key + row, kValueChunks + chunk),
                 this->broadcast(this->k_row, row), chunk, this->rows_read >> row & 1);
    });
  }
};

}  // namespace flash::sm80_serve_mla
