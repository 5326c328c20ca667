// Normalises the output of a warp's rows and writes it, and the log-sum-exp, to global memory.
#pragma once

#include "flash/core/args.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/forward/matmuls.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80 {

template <FlashForwardKernelConfig kConfig>
struct Epilogue {
  using Mm = Matmuls<kConfig>;
  using Tile = typename Mm::Tile;
  static constexpr int kRows = kConfig.rows_per_warp();
  static constexpr int kLanesPerRow = Tile::kChunksPerRow;
  static constexpr int kRowsPerStep = FlashForwardKernelConfig::kWarpSize / kLanesPerRow;

  // Fragments -> shared memory. The warp overwrites its own Q rows, which no other warp reads.
  FLASH_DEVICE static void stage(const typename Mm::Output& o,
                                 const float (&inverse)[Mm::kMTiles][2], uint32_t warp_rows,
                                 int lane) {
    static_for<0, Mm::kMTiles>([&](auto m) {
      constexpr int kFirstRow = m * 16;
      static_for<0, 2>([&](auto half) {
        // Rows m * 16 + half * 8 + lane / 4: their position in a swizzle span is lane / 4.
        constexpr int kRowOffset = (kFirstRow + half * 8) * Tile::kRowBytes;
        const float factor = inverse[m][half];
#pragma unroll
        for (int n = 0; n < 2 * Mm::kDTiles; ++n) {
          const uint32_t packed =
              ptx::pack<kConfig.dtype>(o[m][n][2 * half] * factor, o[m][n][2 * half + 1] * factor);
          const uint32_t address = warp_rows + Tile::offset(lane / 4, n) + (lane % 4) * 4;
          ptx::st_shared_4<kRowOffset>(address, packed);
        }
      });
    });
  }

  // Shared memory -> global, 16 bytes a lane, whole rows. kBounded: only the warp's first `n_rows`
  // rows exist; otherwise all do.
  template <bool kBounded>
  FLASH_DEVICE static void store(uint32_t warp_rows, char* o_rows, int64_t row_bytes, int lane,
                                 int n_rows) {
    const int chunk = lane % kLanesPerRow;
#pragma unroll
    for (int first = 0; first < kRows; first += kRowsPerStep) {
      const int row = first + lane / kLanesPerRow;
      if (kBounded && row >= n_rows) continue;
      const uint32_t address = warp_rows + Tile::offset(row, chunk);
      ptx::st_global_16(o_rows + row * row_bytes + chunk * Tile::kChunkBytes,
                        ptx::ld_shared_16<0>(address));
    }
  }

  // The result of a warp whose rows see no key: zeros and -inf.
  FLASH_DEVICE static void store_blind(char* o_rows, int64_t row_bytes, float* lse_rows, int lane,
                                       int n_rows) {
    const int chunk = lane % kLanesPerRow;
    for (int row = lane / kLanesPerRow; row < min(kRows, n_rows); row += kRowsPerStep) {
      ptx::st_global_16(o_rows + row * row_bytes + chunk * Tile::kChunkBytes, ptx::Vector16{});
    }
    if (lse_rows != nullptr && lane < min(kRows, n_rows)) lse_rows[lane] = kNegativeInfinity;
  }
  static_assert(kRows <= FlashForwardKernelConfig::kWarpSize, "store_blind: a lane per row");

  // One lane of the four that share a row writes its log-sum-exp.
  template <bool kBounded>
  FLASH_DEVICE static void store_lse(const float (&log_sum_exp)[Mm::kMTiles][2], float* lse_rows,
                                     int lane, int n_rows) {
    if (lane % 4 != 0) return;
#pragma unroll
    for (int m = 0; m < Mm::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        if (!kBounded || row < n_rows) lse_rows[row] = log_sum_exp[m][half];
      }
    }
  }
};

}  // namespace flash::sm80
