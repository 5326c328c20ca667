// Blocks of keys out of the pages of a cache: a box for each part that lies in one page.
//
// The entries of a block's parts are read by as many lanes of the producing warp at once, a block
// before they are needed. Of a part that no query of the sequence sees neither the entry nor the
// page is read: it is copied from page -1, which does not exist, and so becomes zeros.
#pragma once

#include "flash/ptx/tma.cuh"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"
#include "flash/sm90_serve/schedule.cuh"

namespace flash::sm90_serve {

inline constexpr int kNoPage = -1;

// Lane i has the page of part i of a block.
template <HopperServeKernelConfig kConfig>
struct PageEntries {
  static constexpr int kBlockN = kConfig.block_n;
  static_assert(kBlockN / HopperServeKernelConfig::kLeastPartRows <= 32, "a lane has one part");

  int first = kNoPage;   // of the next tile's first block
  int ahead = kNoPage;   // of the block that is loaded next
  int here = kNoPage;    // of the block whose keys were loaded last
  int behind = kNoPage;  // of the one before, whose values come after those keys

  // Long before begin_tile().
  FLASH_DEVICE void look_up_first(const ServeKernelArgs& args, const Tile& tile, int lane) {
    if constexpr (kConfig.paged) first = entry(args, tile, tile.end - 1, lane);
  }

  FLASH_DEVICE void begin_tile() {
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

 private:
  FLASH_DEVICE static int entry(const ServeKernelArgs& args, const Tile& tile, int block,
                                int lane) {
    const int key = block * kBlockN + lane * args.part_rows;
    if (key + args.part_rows <= tile.first_key || key >= tile.rule.seqlen_k) return kNoPage;
    return args.pages[tile.batch * args.pages_stride + key / args.page_keys];
  }
};

// By a whole warp, of which one lane copies. `to`: the block's place in shared memory.
template <HopperServeKernelConfig kConfig>
FLASH_DEVICE void copy_parts(const ServeKernelArgs& args, uint32_t to, const sm90::TensorMap& map,
                             uint32_t full, int kv_head, int block, int entries, int lane) {
  constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
  constexpr int kRowBytes = kForward.swizzle_bytes();
  int row = block * kConfig.block_n % args.page_keys;  // of its page
  for (int part = 0; part * args.part_rows < kConfig.block_n; ++part) {
    const int page = __shfl_sync(0xffffffffu, entries, part);
    if (lane == 0) {
#pragma unroll
      for (int chunk = 0; chunk < kForward.n_chunks(); ++chunk) {
        const int place = chunk * kConfig.block_n + part * args.part_rows;
        ptx::tma_load_5d(to + place * kRowBytes, &map, full, 0, row, chunk, kv_head, page,
                         ptx::kEvictLast);
      }
    }
    row += args.part_rows;
    if (row >= args.page_keys) row = 0;
  }
}

}  // namespace flash::sm90_serve
