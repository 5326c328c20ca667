// Writes a warp's rows of a gradient to global memory.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/sm80_bwd/rows.cuh"

namespace flash::sm80_bwd {

// result * factor, rounded, through shared memory (`own_rows`: no other warp reads them there).
// Only the first `n_rows` rows exist. kChunks: that the warp has of a row, from `first_chunk` on.
template <DType kDType, typename L, int kChunks = 2 * L::kDTiles>
FLASH_DEVICE void write_rows(const typename L::Result& result, float factor, uint32_t own_rows,
                             const Rows& gradient, int n_rows, int lane, int first_chunk = 0) {
  using Tile = typename L::Tile;
  __syncwarp();  // every lane has read the rows
  static_for<0, L::kMTiles>([&](auto m) {
    constexpr int kFirstRow = m * 16;
    static_for<0, 2>([&](auto half) {
      // Rows m * 16 + half * 8 + lane / 4: their position in a swizzle span is lane / 4.
      constexpr int kRowOffset = (kFirstRow + half * 8) * Tile::kRowBytes;
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        const uint32_t packed =
            ptx::pack<kDType>(result[m][n][2 * half] * factor, result[m][n][2 * half + 1] * factor);
        const uint32_t address =
            own_rows + Tile::offset(lane / 4, first_chunk + n) + (lane % 4) * 4;
        ptx::st_shared_4<kRowOffset>(address, packed);
      }
    });
  });
  __syncwarp();  // the warp's rows are staged before other lanes read them
  constexpr int kPieces = L::kRowsPerWarp * kChunks;
  static_assert(kPieces % AmpereBackwardKernelConfig::kWarpSize == 0);
#pragma unroll
  for (int first = 0; first < kPieces; first += AmpereBackwardKernelConfig::kWarpSize) {
    const int row = (first + lane) / kChunks;
    const int chunk = first_chunk + (first + lane) % kChunks;
    if (row >= n_rows) continue;
    ptx::st_global_16(gradient.first + row * gradient.row_bytes + chunk * Tile::kChunkBytes,
                      ptx::ld_shared_16<0>(own_rows + Tile::offset(row, chunk)));
  }
}

}  // namespace flash::sm80_bwd
