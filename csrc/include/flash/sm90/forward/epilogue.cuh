// A warp's 16 output rows: normalised, staged in shared memory, stored by the copy engine.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/args.h"
#include "flash/sm90/schedule.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Epilogue {
  static constexpr int kRows = 16;
  static constexpr int kCount = kConfig.value_columns() / 2;
  static constexpr int kChunkBytes = kRows * kConfig.swizzle_bytes();
  static constexpr int kSteps = kConfig.value_columns() / 16;
  static constexpr int kStepsPerChunk = kConfig.chunk_columns() / 16;

  // Normalised output rows into shared memory.
  FLASH_DEVICE static void stage(const float (&o)[kCount], const float (&inverse)[2],
                                 uint32_t warp_tile, int lane) {
    const auto pair = [&](int i, int half) {
      return ptx::pack<kConfig.dtype>(o[i] * inverse[half], o[i + 1] * inverse[half]);
    };
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::stmatrix_x4(address(warp_tile, step, lane), pair(8 * step, 0), pair(8 * step + 2, 1),
                       pair(8 * step + 4, 0), pair(8 * step + 6, 1));
    }
  }

  // Called by the whole warp. Rows behind the end are clipped by the copy engine.
  FLASH_DEVICE static void store(const ForwardKernelArgs& args, const Tile& tile, int row,
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
  FLASH_DEVICE static void store_lse(const ForwardKernelArgs& args, const Tile& tile, int row,
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

  // The copy engine expects the 16-byte pieces of a row permuted (PTX ISA 5.5.7): by the row's
  // number modulo 8 in rows of 128 bytes, by half of that in rows of 64.
  FLASH_DEVICE static int swizzle(int row) {
    return kConfig.swizzle_bytes() == 128 ? row % 8 : row / 2 % 4;
  }

 private:
  // Where the lane writes its 16 bytes of 16 columns: row l % 16, columns 8 * (l / 16).
  FLASH_DEVICE static uint32_t address(uint32_t warp_tile, int step, int lane) {
    const int row = lane % 16;
    const int piece = (lane / 16) ^ swizzle(row) ^ (2 * (step % kStepsPerChunk));
    return warp_tile + step / kStepsPerChunk * kChunkBytes + row * kConfig.swizzle_bytes() +
           piece * 16;
  }
};

}  // namespace flash::sm90
