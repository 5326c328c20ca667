// Which tiles (block_m query rows of one head) a thread block computes, and in which order.
//
// The grid is at most one block per multiprocessor. Tiles stand in a list; a block takes the next
// that nobody has taken, or, without a counter, a fixed share.
//
// Full attention: query blocks of a head one after the other, so that blocks at work share K and V
// in L2. Causal: inside a section of heads whose K and V fit L2, longest tiles first, so that the
// short ones fill the gaps at the end; and where a head's last tile would have one warpgroup at
// work alone, tiles begin that much earlier: the one is in the first tile then, which sees the
// fewest keys, and the tile begins at a negative row.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm90/args.h"
#include "flash/sm90/config.h"
#include "flash/tile/visible.cuh"

namespace flash::sm90 {

// In place of a list position: no tile is left.
inline constexpr int kNoTile = -1;

struct Tile {
  int first_row;  // may be negative, by whole warpgroups
  int head;
  int batch;
};

template <HopperForwardKernelConfig kConfig>
struct TileSchedule {
  static constexpr int kBlockM = kConfig.block_m();
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr int kGroupRows = HopperForwardKernelConfig::kGroupRows;

  const ForwardKernelArgs& args;
  int blocks_per_head;
  int origin;  // first row of a head's first tile, at most 0
  int n_tiles;

  FLASH_DEVICE explicit TileSchedule(const ForwardKernelArgs& launch_args)
      : args(launch_args),
        blocks_per_head((launch_args.seqlen_q + kBlockM - 1) / kBlockM),
        origin(launch_args.causal ? first_row_of_all(launch_args.seqlen_q) : 0),
        n_tiles(blocks_per_head * launch_args.n_heads_q * launch_args.batch) {}

  // The list position of this block's round-th tile, n_tiles or more: none is left. By one thread
  // of the block, rounds in order, each in two parts: the counter takes its time to answer.
  FLASH_DEVICE int ask(int round) const {
    if (args.tile_counter == nullptr) return fixed_position(round);
    return atomicAdd(args.tile_counter, 1);
  }
  FLASH_DEVICE int position(int answer) const {
    return args.tile_counter == nullptr ? answer : gridDim.x + answer;
  }
  // Every block asks once in vain, so the last question is known: nobody else will ask.
  FLASH_DEVICE void reset_after(int answer) const {
    if (args.tile_counter != nullptr && answer == n_tiles - 1) atomicExch(args.tile_counter, 0);
  }

  // With two warpgroups in the last tile of three, nothing was gained (1 % lost; H200, 512 and
  // 2,048 keys), with one 3 to 6 % (1,024 and 4,096).
  FLASH_DEVICE static int first_row_of_all(int seqlen_q) {
    constexpr int kGroups = kConfig.n_mma_groups;
    const int used = (seqlen_q + kGroupRows - 1) / kGroupRows;
    return used % kGroups == 1 && kGroups > 1 ? (1 - kGroups) * kGroupRows : 0;
  }

  // Every other round runs backwards, so that a block that got a long tile of a falling sequence
  // gets a short one next.
  FLASH_DEVICE int fixed_position(int round) const {
    const int in_round = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return round * gridDim.x + in_round;
  }

  FLASH_DEVICE Tile tile(int index) const {
    int row_block, batch_head;
    if (args.causal) {
      const int section_tiles = blocks_per_head * args.heads_per_section;
      const int section = index / section_tiles;
      const int in_section = index - section * section_tiles;
      const int first_head = section * args.heads_per_section;
      const int heads = min(args.heads_per_section, args.n_heads_q * args.batch - first_head);
      const int step = in_section / heads;
      row_block = blocks_per_head - 1 - step;
      batch_head = first_head + in_section - step * heads;
    } else {
      batch_head = index / blocks_per_head;
      row_block = index - batch_head * blocks_per_head;
    }
    const int batch = batch_head / args.n_heads_q;
    return {origin + row_block * kBlockM, batch_head - batch * args.n_heads_q, batch};
  }

  // KV blocks that some row of the tile sees; of the warpgroup whose rows start at `row`.
  FLASH_DEVICE int n_blocks(const Tile& tile) const {
    return (n_visible_keys(args, tile.first_row + kBlockM - 1) + kBlockN - 1) / kBlockN;
  }
  FLASH_DEVICE int n_visible_blocks(int row) const {
    if (row < 0 || row >= args.seqlen_q) return 0;
    return (n_visible_keys(args, row + kGroupRows - 1) + kBlockN - 1) / kBlockN;
  }

  // KV blocks, counted from the first, that every row from `row` on sees whole.
  FLASH_DEVICE int n_whole_blocks(int row) const { return n_visible_keys(args, row) / kBlockN; }

  // KV blocks, counted from the first, that come (last block first) behind half a block of keys or
  // more of every row from `row` on.
  FLASH_DEVICE int n_blocks_behind_keys(int row) const {
    return max(0, n_visible_keys(args, row) - kBlockN / 2) / kBlockN;
  }
};

}  // namespace flash::sm90
