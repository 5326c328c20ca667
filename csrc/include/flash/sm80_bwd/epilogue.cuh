// Writes a warp's rows of a gradient to global memory.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/sm80_bwd/rows.cuh"

namespace flash::sm80_bwd {

// result * factor, rounded, through shared memory (`own_rows`: of this warp, which no other warp
// reads). Only the first `n_rows` rows exist.
template <AmpereBackwardKernelConfig kConfig, typename L>
FLASH_DEVICE void write_rows(const typename L::Result& result, float factor, uint32_t own_rows,
                             const Rows& gradient, int n_rows, int lane) {
  using Tile = typename L::Tile;
  __syncwarp();  // every lane has read the rows
  static_for<0, L::kMTiles>([&](auto m) {
    constexpr int kFirstRow = m * 16;
    static_for<0, 2>([&](auto half) {
      // Rows m * 16 + half * 8 + lane / 4: their position in a swizzle span is lane / 4.
      constexpr int kRowOffset = (kFirstRow + half * 8) * Tile::kRowBytes;
#pragma unroll
      for (int n = 0; n < 2 * L::kDTiles; ++n) {
        const uint32_t packed = ptx::pack<kConfig.dtype>(result[m][n][2 * half] * factor,
                                                         result[m][n][2 * half + 1] * factor);
        const uint32_t address = own_rows + Tile::offset(lane / 4, n) + (lane % 4) * 4;
        ptx::st_shared_4<kRowOffset>(address, packed);
      }
    });
  });
  __syncwarp();  // the warp's rows are staged before other lanes read them
  constexpr int kChunks = L::kRowsPerWarp * Tile::kChunksPerRow;
  static_assert(kChunks % AmpereBackwardKernelConfig::kWarpSize == 0);
#pragma unroll
  for (int first = 0; first < kChunks; first += AmpereBackwardKernelConfig::kWarpSize) {
    const int row = (first + lane) / Tile::kChunksPerRow;
    const int chunk = (first + lane) % Tile::kChunksPerRow;
    if (row >= n_rows) continue;
    ptx::st_global_16(gradient.first + row * gradient.row_bytes + chunk * Tile::kChunkBytes,
                      ptx::ld_shared_16<0>(own_rows + Tile::offset(row, chunk)));
  }
}

}  // namespace flash::sm80_bwd
