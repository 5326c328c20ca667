// Copies of row blocks by the whole thread block: global -> shared, 16 bytes a thread and step.
#pragma once

#include "flash/ptx/cp_async.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_bwd {

// Thread t copies chunk t % kChunksPerRow of rows t / kChunksPerRow, + kRowsPerStep, ... Where a
// row is no power of two of chunks, the last threads have nothing to do.
template <typename Tile, int kThreads>
struct RowCopy {
  static constexpr int kRowsPerStep =
      kThreads / Tile::kChunksPerRow / Tile::kSwizzleRows * Tile::kSwizzleRows > 0
          ? kThreads / Tile::kChunksPerRow / Tile::kSwizzleRows * Tile::kSwizzleRows
          : kThreads / Tile::kChunksPerRow;

  int row;    // this thread's first row
  int chunk;  // this thread's chunk of every row

  FLASH_DEVICE explicit RowCopy(int thread)
      : row(thread / Tile::kChunksPerRow), chunk(thread % Tile::kChunksPerRow) {}

  // Issues the copies of kRows rows, `row_bytes` apart, to the tile at shared address `tile`. Only
  // the first `n_rows` rows exist; the others become zeros, and their global memory is not touched.
  template <int kRows>
  FLASH_DEVICE void load(uint32_t tile, const char* block, int64_t row_bytes, int n_rows) const {
    if (row >= kRowsPerStep) return;
    const char* source = block + row * row_bytes + chunk * Tile::kChunkBytes;
    const int64_t step_bytes = kRowsPerStep * row_bytes;
    static_for<0, (kRows + kRowsPerStep - 1) / kRowsPerStep>([&](auto step) {
      constexpr int kFirst = step * kRowsPerStep;
      if (kRows % kRowsPerStep == 0 || row + kFirst < kRows) {
        const uint32_t bytes = row + kFirst < n_rows ? Tile::kChunkBytes : 0;
        const uint32_t address = tile + Tile::offset(row + kFirst, chunk);
        ptx::cp_async_16_zero_fill<0>(address, source, bytes);
      }
      source += step_bytes;
    });
  }
};

}  // namespace flash::sm80_bwd
