// Blocks of keys out of the pages of a cache: a box for each part that lies in one page.
//
// The entries of a block's parts are read by as many lanes of the producing warp at once, a block
// before they are needed. Of a part that no query of the sequence sees neither the entry nor the
// page is read: it is copied from page -1, which does not exist, and so becomes zeros.
#pragma once

#include "flash/ptx/elect.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"
#include "flash/sm90_serve/schedule.cuh"
#include "flash/tile/divisor.cuh"

namespace flash::sm90_serve {

inline constexpr int kNoPage = -1;

// Lane i has the page of part i of a block. Nothing is divided in front of a copy: that would take
// longer than the copy, and values would come late.
template <HopperServeKernelConfig kConfig>
struct PageEntries {
  static constexpr int kBlockN = kConfig.block_n;
  static_assert(kBlockN / HopperServeKernelConfig::kLeastPartRows <= 32, "a lane has one part");

  int kv_head = 0;
  int first = kNoPage;   // of the next tile's first block
  int ahead = kNoPage;   // of the block that is loaded next
  int here = kNoPage;    // of the block whose keys were loaded last
  int behind = kNoPage;  // of the one before, whose values come after those keys

  // Long before begin_tile().
  FLASH_DEVICE void look_up_first(const ServeKernelArgs& args, const Tile& tile, int lane) {
    if constexpr (kConfig.paged) first = entry(args, tile, tile.end - 1, lane);
  }

  FLASH_DEVICE void begin_tile(int kv_head_of_tile) {
    kv_head = kv_head_of_tile;
    if constexpr (kConfig.paged) ahead = first;
  }

  // `block` is loaded now, and the one before it next.
  FLASH_DEVICE void step(const ServeKernelArgs& args, const Tile& tile, int block, int lane) {
    if constexpr (kConfig.paged) {
      behind = here;
      here = ahead;
      ahead = entry(args, tile, block - 1, lane);
    }
  }

  // Where a block's first part begins in its page.
  FLASH_DEVICE static int row_of(const ServeKernelArgs& args, int block) {
    return divide(args, block * kBlockN).remainder;
  }

 private:
  FLASH_DEVICE static Divisor::Result divide(const ServeKernelArgs& args, int key) {
    return Divisor(args.page_keys, args.page_inverse).divide(key);
  }

  FLASH_DEVICE int entry(const ServeKernelArgs& args, const Tile& tile, int block, int lane) const {
    const int key = block * kBlockN + lane * args.part_rows;
    if (key + args.part_rows <= tile.first_key || key >= tile.rule.seqlen_k) return kNoPage;
    const int page = divide(args, key).quotient;
    return args.pages[tile.batch * args.pages_stride + page];
  }
};

// The smallest pages that are usual, whose many boxes have a loop of their own: where in a page and
// in the block a box lies is known to the compiler, and two pages leave their lanes together. The
// loop for all sizes copies so slowly that matmuls wait (docs/kernels/06-serving.md).
inline constexpr int kSmallPage = 16;

template <HopperServeKernelConfig kConfig, int kChunks>
FLASH_DEVICE void copy_small_pages(uint32_t to, const sm90::TensorMap& map, uint32_t full,
                                   const PageEntries<kConfig>& pages, int entries) {
  constexpr int kRowBytes = kConfig.forward().swizzle_bytes();
  constexpr int kPages = kConfig.block_n / kSmallPage;
  constexpr int kAtOnce = 2;  // more would be spilled
  static_assert(kPages % kAtOnce == 0);
#pragma unroll 1
  for (int first = 0; first < kPages; first += kAtOnce) {
    int page[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) page[i] = __shfl_sync(0xffffffffu, entries, first + i);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!ptx::elect_one()) continue;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int place = chunk * kConfig.block_n + (first + i) * kSmallPage;
        ptx::tma_load_5d(to + place * kRowBytes, &map, full, 0, 0, chunk, pages.kv_head, page[i],
                         ptx::kEvictLast);
      }
    }
  }
}

// By a whole warp, of which one lane copies. `to`: the block's place in shared memory; `entries`:
// the block's, of `pages`.
template <HopperServeKernelConfig kConfig, int kChunks>
FLASH_DEVICE void copy_parts(const ServeKernelArgs& args, uint32_t to, const sm90::TensorMap& map,
                             uint32_t full, const PageEntries<kConfig>& pages, int block,
                             int entries) {
  constexpr int kRowBytes = kConfig.forward().swizzle_bytes();
  // A page of longer rows is three boxes or more, beside which what is around them does not count.
  if constexpr (kConfig.forward().n_chunks() <= 2) {
    if (args.page_keys == kSmallPage) {
      copy_small_pages<kConfig, kChunks>(to, map, full, pages, entries);
      return;
    }
  }
  const int part_bytes = args.part_rows * kRowBytes;
  int row = pages.row_of(args, block);
  // Short, since there are four copies of it, and slower wherever it was longer.
#pragma unroll 1
  for (int part = 0; part < args.block_parts; ++part) {
    const int page = __shfl_sync(0xffffffffu, entries, part);
    if (ptx::elect_one()) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        ptx::tma_load_5d(to + chunk * kConfig.block_n * kRowBytes, &map, full, 0, row, chunk,
                         pages.kv_head, page, ptx::kEvictLast);
      }
    }
    to += part_bytes;
    row += args.part_rows;
    if (row >= args.page_keys) row = 0;
  }
}

}  // namespace flash::sm90_serve
