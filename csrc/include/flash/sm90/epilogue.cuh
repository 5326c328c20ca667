// A warp's 16 output rows: normalised, staged in shared memory, stored by the copy engine.
#pragma once

#include "flash/core/hopper_forward_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/tile_schedule.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Epilogue {
  static constexpr int kRows = 16;
  static constexpr int kCount = kConfig.d_head / 2;
  static constexpr int kChunkBytes = kRows * kConfig.swizzle_bytes();
  static constexpr int kStepsPerChunk = kConfig.chunk_columns() / 16;

  // The tile as the copy engine expects it: 16-byte pieces of a row permuted by the row (PTX ISA
  // 5.5.7): by the row's number modulo 8 with 128-byte rows, by half of that with 64-byte rows.
  // Lane l writes row l % 16, columns 8 * (l / 16) of every 16.
  FLASH_DEVICE static void stage(const float (&o)[kCount], const float (&inverse)[2],
                                 uint32_t warp_tile, int lane) {
    const int row = lane % 16;
    const int swizzle = kConfig.swizzle_bytes() == 128 ? row % 8 : row / 2 % 4;
    const uint32_t row_address = warp_tile + row * kConfig.swizzle_bytes();
    const int piece = (lane / 16) ^ swizzle;
#pragma unroll
    for (int step = 0; step < kConfig.d_head / 16; ++step) {
      const float* value = o + 8 * step;
      const uint32_t address = row_address + step / kStepsPerChunk * kChunkBytes +
                               ((piece ^ (2 * (step % kStepsPerChunk))) * 16);
      ptx::stmatrix_x4(address,
                       ptx::pack<kConfig.dtype>(value[0] * inverse[0], value[1] * inverse[0]),
                       ptx::pack<kConfig.dtype>(value[2] * inverse[1], value[3] * inverse[1]),
                       ptx::pack<kConfig.dtype>(value[4] * inverse[0], value[5] * inverse[0]),
                       ptx::pack<kConfig.dtype>(value[6] * inverse[1], value[7] * inverse[1]));
    }
  }

  // Called by the whole warp. Rows behind the end are clipped by the copy engine.
  FLASH_DEVICE static void store(const HopperForwardArgs& args, const Tile& tile, int row,
                                 uint32_t warp_tile, int lane) {
    ptx::fence_proxy_async_shared();  // the staged rows, for the copy engine
    __syncwarp();                     // ... of all lanes
    if (lane == 0) {
      ptx::tma_store_5d(&args.o, warp_tile, 0, row, 0, tile.head, tile.batch);
      ptx::tma_store_commit();
    }
  }

  // Until the copy engine has read what this warp staged last.
  FLASH_DEVICE static void wait_staging_free(int lane) {
    if (lane == 0) ptx::tma_store_wait_read<0>();
    __syncwarp();
  }

  // One lane of the four that share a row writes its log-sum-exp.
  FLASH_DEVICE static void store_lse(const HopperForwardArgs& args, const Tile& tile, int row,
                                     const float (&log_sum_exp)[2], int lane) {
    if (args.lse == nullptr || lane % 4 != 0) return;
    const int64_t head = static_cast<int64_t>(tile.batch) * args.n_heads_q + tile.head;
    float* lse = args.lse + head * args.seqlen_q;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + lane / 4 + 8 * half;
      if (query < args.seqlen_q) lse[query] = log_sum_exp[half];
    }
  }
};

}  // namespace flash::sm90
