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

namespace flash::sm90_serve {

inline constexpr int kNoPage = -1;

// Parts whose entries leave their lanes together, so that a copy does not wait for its own: two of
// long rows, or beside three groups, as the producer has few registers.
template <HopperServeKernelConfig kConfig>
inline constexpr int kPartsAtOnce =
    kConfig.forward().n_chunks() > 2 || kConfig.n_mma_groups == 3 ? 2 : 4;

// Lane i has the page of part i of a block. What needs a division is found once for a tile: in
// front of every copy it would take longer than the copy, and values would come late.
template <HopperServeKernelConfig kConfig>
struct PageEntries {
  static constexpr int kBlockN = kConfig.block_n;
  static_assert(kBlockN / HopperServeKernelConfig::kLeastPartRows + kPartsAtOnce<kConfig> <= 32,
                "a lane has one part");

  int n_parts = 0;  // of a block
  int kv_head = 0;
  int first = kNoPage;   // of the next tile's first block
  int ahead = kNoPage;   // of the block that is loaded next
  int here = kNoPage;    // of the block whose keys were loaded last
  int behind = kNoPage;  // of the one before, whose values come after those keys

  FLASH_DEVICE explicit PageEntries(const ServeKernelArgs& args) {
    if constexpr (kConfig.paged) n_parts = kBlockN / args.part_rows;
  }

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
    return are_whole(args) ? 0 : block * kBlockN % args.page_keys;
  }

 private:
  FLASH_DEVICE static bool are_whole(const ServeKernelArgs& args) {
    return args.part_rows == args.page_keys;
  }

  FLASH_DEVICE int entry(const ServeKernelArgs& args, const Tile& tile, int block, int lane) const {
    const int key = block * kBlockN + lane * args.part_rows;
    if (key + args.part_rows <= tile.first_key || key >= tile.rule.seqlen_k) return kNoPage;
    const int page = are_whole(args) ? block * n_parts + lane : key / args.page_keys;
    return args.pages[tile.batch * args.pages_stride + page];
  }
};

// The smallest pages that are usual, whose many boxes have a loop of their own: where in a page and
// in the block a box lies is known to the compiler, and no box waits for a branch. The loop for all
// sizes copies so slowly that matmuls wait (docs/kernels/06-serving.md).
inline constexpr int kSmallPage = 16;

template <HopperServeKernelConfig kConfig, int kChunks>
FLASH_DEVICE void copy_small_pages(uint32_t to, const sm90::TensorMap& map, uint32_t full,
                                   const PageEntries<kConfig>& pages, int entries) {
  constexpr int kRowBytes = kConfig.forward().swizzle_bytes();
  constexpr int kPages = kConfig.block_n / kSmallPage;
  constexpr int kAtOnce = kConfig.forward().n_chunks() > 2 ? 1 : 2;  // more would be spilled
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
  constexpr int kAtOnce = kPartsAtOnce<kConfig>;
  if (args.page_keys == kSmallPage) {
    copy_small_pages<kConfig, kChunks>(to, map, full, pages, entries);
    return;
  }
  int row = pages.row_of(args, block);
  for (int begin = 0; begin < pages.n_parts; begin += kAtOnce) {
    int page[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) page[i] = __shfl_sync(0xffffffffu, entries, begin + i);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= pages.n_parts) break;
      if (ptx::elect_one()) {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          const int place = chunk * kConfig.block_n + (begin + i) * args.part_rows;
          ptx::tma_load_5d(to + place * kRowBytes, &map, full, 0, row, chunk, pages.kv_head,
                           page[i], ptx::kEvictLast);
        }
      }
      row += args.part_rows;
      if (row >= args.page_keys) row = 0;
    }
  }
}

}  // namespace flash::sm90_serve
