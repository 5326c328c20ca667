// Copies of row blocks by the whole thread block: global -> shared, 16 bytes a thread and step.
#pragma once

#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/config.h"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80 {

// Thread t copies chunk t % kChunksPerRow of rows t / kChunksPerRow, + kRowsPerStep, ... A warp's
// lanes cover whole rows, so global accesses are coalesced; kRowsPerStep is a multiple of the
// swizzle's 8 rows, so a thread's shared address advances by a constant.
template <FlashForwardKernelConfig kConfig>
struct BlockCopy {
  using Tile = SharedTile<kConfig.d_head, kConfig.swizzled>;
  static constexpr int kRowsPerStep = kConfig.n_threads() / Tile::kChunksPerRow;
  static_assert(kRowsPerStep % Tile::kSwizzleRows == 0);

  int row;             // this thread's first row
  int chunk;           // this thread's chunk of every row
  uint32_t smem_base;  // shared address of (row, chunk) in a tile that starts the dynamic memory

  FLASH_DEVICE BlockCopy(uint32_t smem, int thread)
      : row(thread / Tile::kChunksPerRow),
        chunk(thread % Tile::kChunksPerRow),
        smem_base(smem + Tile::offset(row, chunk)) {}

  // This thread's first source address in a block that starts at `block`; rows are `row_bytes`
  // apart.
  FLASH_DEVICE const char* source(const void* block, int64_t row_bytes) const {
    return static_cast<const char*>(block) + row * row_bytes + chunk * Tile::kChunkBytes;
  }

  // Copies kRows rows to the tile kTileOffset bytes into the dynamic shared memory. The bytes can
  // be read after load_wait() in every copying thread and a barrier. kBounded: only the first
  // `n_rows` rows exist; the others become zeros, and their global memory is not touched.
  template <int kRows, int kTileOffset, bool kBounded>
  FLASH_DEVICE void load(const char* source, int64_t row_bytes, int n_rows) const {
    const int64_t step_bytes = kRowsPerStep * row_bytes;
    static_for<0, kRows / kRowsPerStep>([&](auto step) {
      constexpr int kOffset = kTileOffset + step * kRowsPerStep * Tile::kRowBytes;
      const bool exists = !kBounded || row + step * kRowsPerStep < n_rows;
      if constexpr (kConfig.async_copy && kBounded) {
        ptx::cp_async_16_zero_fill<kOffset>(smem_base, source, exists ? 16 : 0);
      } else if constexpr (kConfig.async_copy) {
        ptx::cp_async_16<kOffset>(smem_base, source);
      } else {
        ptx::st_shared_16<kOffset>(smem_base, exists ? ptx::ld_global_16(source) : ptx::Vector16{});
      }
      source += step_bytes;
    });
  }
};

// Closes the group of the loads issued so far. Copies through registers need no group.
template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void load_commit() {
  if constexpr (kConfig.async_copy) ptx::cp_async_commit_group();
}

// Waits until at most kPending groups of this thread are in flight.
template <FlashForwardKernelConfig kConfig, int kPending>
FLASH_DEVICE void load_wait() {
  if constexpr (kConfig.async_copy) ptx::cp_async_wait_group<kPending>();
}

}  // namespace flash::sm80
