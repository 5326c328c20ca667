// Attention that serves: sequences of any lengths, packed, padded or in the pages of a cache, with
// windows, soft caps and sinks, for long prompts as for single new tokens. For sm_80 and later:
// cp.async, ldmatrix, mma.sync m16n8k16, online softmax in fp32. Three kernels:
//
//   kAppend   Writes new keys and values to the cache, and rotates, where that is asked for.
//   kServe    Of configurations for prompts, a thread block takes a tile of rows and a part (split)
//             of the keys that they see; each warp has 16 rows. Of configurations for few rows, the
//             thread blocks share the keys of the whole call (decode.cuh); warps that have no rows
//             of their own share the keys of every block, and each has a softmax of its own until
//             the end.
//   kCombine  Merges the splits, where there are several.
//
// What a call asks for, but for the element type and the head dimension, is decided at run time,
// outside of the inner loop or by one uniform branch a block.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/core/variant.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/forward/softmax.cuh"
#include "flash/sm80_serve/append.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/decode.cuh"
#include "flash/sm80_serve/keys.cuh"
#include "flash/sm80_serve/matmuls.cuh"
#include "flash/sm80_serve/queries.cuh"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve/sums.cuh"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

// A thread block takes a tile and one split of its keys.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void attend(const ServeArgs& args) {
  const auto matmuls = make_matmuls<kConfig>(args);
  using Mm = decltype(matmuls);
  using Lane = typename Mm::Lane;
  constexpr int kStages = kConfig.n_stages;
  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x;
  const int lane = thread % AmpereServeKernelConfig::kWarpSize;
  const int warp = thread / AmpereServeKernelConfig::kWarpSize;
  const int warp_row = warp % kConfig.row_warps() * 16;

  const Tile<kConfig> tile = tile_of<kConfig>(args, blockIdx.x, lane);
  if (tile.n_rows == 0) return;
  const KeyBlocks<kConfig.B_c> all(tile.rule, tile.query(0), tile.query(tile.n_rows - 1));
  const int split = split_of<kConfig>(args, blockIdx.x);
  const int share = (all.end - all.begin + args.n_splits - 1) / args.n_splits;
  const int begin = min(all.begin + split * share, all.end);
  const int end = min(begin + share, all.end);

  KeyStream<kConfig> stream(args, smem + kConfig.q_bytes(), warp, lane);
  const auto look_up = [&](int block) { stream.look_up(tile, all.keys, block * kConfig.B_c); };
  const auto copy_to = [&](int stage) {
    stream.find();
    stream.copy_to(stage);
  };
  look_up(begin);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (begin + stage < end) copy_to(stage);
    ptx::cp_async_commit_group();
    look_up(begin + stage + 1);
  }
  QueryRows<kConfig> queries;
  queries.ask(args, tile);
  queries.store(smem);
  __syncthreads();  // Q is visible
  typename Mm::QOperand q;
  q.prologue(Lane(smem + warp_row * Mm::Tile::kRowBytes, lane, MatrixOrder::kRowsFirst));

  const ScoreRules<kConfig> rules(args, tile, all.keys, warp_row, lane);
  sm80::OnlineSoftmax<1, true> softmax(args.softmax_scale);
  typename Mm::Output o;
  Mm::clear(o);
  const bool idle = warp_row >= tile.n_rows;  // it copies keys for the others
  int stage = kStages - 1;
  for (int block = begin; block < end; ++block) {
    const int free_stage = stage;
    stage = stage == kStages - 1 ? 0 : stage + 1;
    ptx::cp_async_wait_group<kStages - 2>();
    sync_readers<kConfig>(warp);  // this block is visible; every warp has read the one before
    if (block + kStages - 1 < end) copy_to(free_stage);
    ptx::cp_async_commit_group();
    look_up(block + kStages);
    if (idle) continue;

    // The matmuls' tile offsets count from where Q would lie before the slice.
    const uint32_t slice =
        stream.slice + stage * kConfig.stage_bytes() - static_cast<uint32_t>(Mm::kKOffset);
    typename Mm::Scores s;
    matmuls.scores(s, q, Lane(slice, lane, MatrixOrder::kRowsFirst),
                   Lane(slice, lane, MatrixOrder::kColumnsFirst));
    if (args.softcap != 0.0f) rules.cap_scores(s[0]);
    if (!all.is_whole(block)) rules.hide(s[0], block * kConfig.B_c);
    // As if all blocks so far were one: their number would not fit the registers.
    softmax.template update</*kFirst=*/false, /*kMasked=*/true>(s, o, /*n_before=*/1);
    matmuls.accumulate(o, s, Lane(slice, lane, MatrixOrder::kRowsFirst));
  }

  __syncthreads();  // every warp has read its last block
  const Sums<kConfig> sums = {reinterpret_cast<float*>(shared_memory + kConfig.sums_offset()),
                              reinterpret_cast<float*>(shared_memory + kConfig.q_bytes() +
                                                       kStages * kConfig.stage_bytes())};
  sums.template store<Mm>(o, softmax, warp, lane, tile.n_rows);
  __syncthreads();  // the sums of all warps are visible
  const bool is_whole = args.n_splits == 1;
  merge_rows<kConfig, 1>(
      tile, 1, is_whole ? args.sinks : nullptr, [&](int, int r) { return sums.lse(0, r); },
      [&](int, int r, int column) { return sums.of(0, r, column); },
      [&](int r, int column, const MergedColumns& merged) {
        if (is_whole) {
          store_result(args, tile, r, column, merged);
          return;
        }
        const int64_t to = partial_row(args, tile, split, r);
        reinterpret_cast<float4*>(args.o_partial)[(to * kConfig.d_head + column) / 4] = merged.o;
        if (column == 0) args.lse_partial[to] = merged.lse;
      });
}

template <AmpereServeKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void serve(const ServeArgs& args) {
  if constexpr (kVariant == Variant::kAppend) {
    append<kConfig>(args);
  } else if constexpr (kVariant == Variant::kCombine) {
    combine<kConfig>(args);
  } else if constexpr (kConfig.shares_keys()) {
    decode<kConfig>(args);
  } else {
    attend<kConfig>(args);
  }
}

}  // namespace flash::sm80_serve
