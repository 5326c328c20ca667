// Which tiles (block_m rows, of one sequence and of one head, or of those of a KV head) a thread
// block computes.
//
// Tiles stand in a list, as in sm90/schedule.cuh. A sequence that begins with row `start` of a
// packed q has the tiles from start / (a tile's queries) + its number on: it may have a tile too
// many, and never one too few, so that no sums over lengths are needed. Late queries, which see the
// most keys, come first, and the heads of a section share their keys in L2 (with
// pack_gqa: in turn from both ends of the list). Where later queries see
// more keys, tiles begin at a negative row as there.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm90/schedule.cuh"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"
#include "flash/sm90_serve/packing.cuh"
#include "flash/tile/key_range.cuh"
#include "flash/tile/packed_rows.cuh"

namespace flash::sm90_serve {

// A tile, and what has to be known of its sequence.
struct Tile {
  int row;      // the first query, in the sequence; may be negative, by whole warpgroups
  int head;     // with pack_gqa the KV head
  int batch;    // the sequence
  int q_start;  // its first row of q, counted from `q_batch`
  int q_batch;
  KeyRule rule;
  int begin, end;  // blocks of keys of which some row sees something
  // For the producer alone.
  int k_start;  // its first row of k
  int k_batch;
  int first_key;  // the first that any query of the sequence sees
};

template <HopperServeKernelConfig kConfig>
struct TileSchedule {
  using Rows = Packing<kConfig>;
  using Dense = sm90::TileSchedule<kConfig.forward()>;

  const ServeKernelArgs& args;
  int n_tiles;

  FLASH_DEVICE explicit TileSchedule(const ServeKernelArgs& launch_args)
      : args(launch_args), n_tiles(launch_args.tiles_per_head * Rows::n_heads(launch_args)) {}

  // The list position of this block's next tile, as sm90::TileSchedule: by one thread, in two
  // parts. Without a counter the answer before it decides, 0 before the first.
  FLASH_DEVICE int ask(int answer) const {
    return args.tile_counter == nullptr ? answer + 1 : atomicAdd(args.tile_counter, 1);
  }
  FLASH_DEVICE int position(int answer) const {
    if (args.tile_counter == nullptr) return blockIdx.x + answer * gridDim.x;
    // Every block asks once in vain, so the last question is known: nobody else will ask.
    if (answer == n_tiles - 1) atomicExch(args.tile_counter, 0);
    return gridDim.x + answer;
  }

  // By all lanes of a warp. False: there is no such tile.
  FLASH_DEVICE bool find(int index, int lane, Tile& tile) const {
    const ServeArgs& call = args.call;
    const int section_tiles = args.tiles_per_head * args.heads_per_section;
    const int section = index / section_tiles;
    const int in_section = index - section * section_tiles;
    const int first_head = section * args.heads_per_section;
    const int heads = min(args.heads_per_section, Rows::n_heads(args) - first_head);
    const int step = in_section / heads;
    tile.head = first_head + in_section - step * heads;
    const int of_head = kConfig.pack_gqa ? from_both_ends(step) : args.tiles_per_head - 1 - step;
    if (call.cu_seqlens_q == nullptr) {
      const int tiles_each = args.tiles_per_head / call.batch;
      tile.batch = of_head / tiles_each;
      tile.row = (of_head - tile.batch * tiles_each) * Rows::tile_queries(args);
      tile.q_start = 0;
      tile.q_batch = tile.batch;
      tile.rule.seqlen_q = call.seqlen_q;
    } else {
      tile.batch = sequence_of(of_head, lane);
      if (tile.batch < 0) return false;
      tile.q_start = call.cu_seqlens_q[tile.batch];
      tile.q_batch = 0;
      tile.row = (of_head - tiles_before(tile.q_start, tile.batch)) * Rows::tile_queries(args);
      tile.rule.seqlen_q = call.cu_seqlens_q[tile.batch + 1] - tile.q_start;
    }
    if (call.seqused_q != nullptr) {
      tile.rule.seqlen_q = min(tile.rule.seqlen_q, call.seqused_q[tile.batch]);
    }
    if (call.window_right != kNoWindow) {
      if constexpr (kConfig.pack_gqa) {
        const int queries = Rows::group_queries(args);
        const int rows = (tile.rule.seqlen_q + queries - 1) / queries * Dense::kGroupRows;
        tile.row += Dense::first_row_of_all(rows) / Dense::kGroupRows * queries;
      } else {
        tile.row += Dense::first_row_of_all(tile.rule.seqlen_q);
      }
    }
    if (tile.row >= tile.rule.seqlen_q) return false;
    find_keys(tile);
    return true;
  }

 private:
  // Of batches with few and with many queries: tiles that wait for memory and tiles that multiply
  // are at work at the same time, whichever stand first in the batch.
  FLASH_DEVICE int from_both_ends(int step) const {
    return step % 2 == 0 ? args.tiles_per_head - 1 - step / 2 : step / 2;
  }

  FLASH_DEVICE int tiles_before(int start, int batch) const {
    return start / Rows::tile_queries(args) + batch;
  }

  // The last sequence that begins at or before a tile, or -1: found by all lanes of a warp.
  FLASH_DEVICE int sequence_of(int tile, int lane) const {
    return last_begun(args.call.batch, tile, lane,
                      [&](int b) { return tiles_before(args.call.cu_seqlens_q[b], b); });
  }

  FLASH_DEVICE void find_keys(Tile& tile) const {
    const ServeArgs& call = args.call;
    int seqlen_k = call.seqlen_k;
    tile.k_start = 0;
    tile.k_batch = tile.batch;
    if (call.cu_seqlens_k != nullptr) {
      tile.k_start = call.cu_seqlens_k[tile.batch];
      seqlen_k = call.cu_seqlens_k[tile.batch + 1] - tile.k_start;
      tile.k_batch = 0;
      if constexpr (kConfig.paged) tile.k_start = 0;  // they say lengths alone
    }
    if (call.seqused_k != nullptr) seqlen_k = call.seqused_k[tile.batch];
    tile.rule.seqlen_k = max(0, min(seqlen_k, call.seqlen_k - tile.k_start));
    tile.rule.leftpad = call.leftpad_k == nullptr ? 0 : call.leftpad_k[tile.batch];
    tile.rule.left = call.window_left;
    tile.rule.right = call.window_right;
    const int last = min(tile.row + Rows::tile_queries(args), tile.rule.seqlen_q) - 1;
    const KeyBlocks<kConfig.block_n> blocks(tile.rule, max(tile.row, 0), last);
    tile.begin = blocks.begin;
    tile.end = blocks.end;
    tile.first_key = tile.rule.of(0).begin;
  }
};

}  // namespace flash::sm90_serve
