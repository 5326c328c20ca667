// Thread blocks add to the sums of a block of queries one after the other, always in the same order
// (flash/tile/ordered_tiles.cuh). So the sums, and dQ, are bitwise the same in every run.
//
// For each block of queries a counter in global memory says how many thread blocks have added
// theirs. Nobody waits for a thread block behind its own in the grid; GPUs start them in that
// order, so that the one that is waited for runs, or is over.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm90_bwd_fused/config.h"

namespace flash::sm90_bwd_fused {

template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE int64_t sums_rows(const BackwardArgs& call) {
  return int64_t{call.batch} * call.n_heads_q *
         row_stats_rows(call.seqlen_q, kConfig.stats_block());
}

// Counters lie behind the sums, one for each of their rows. That of a block's first row is used
// where sums are added in order, and always one more, of tiles (tiles.cuh). Then come those of
// blocks of keys (split_heads.cuh).
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE uint32_t* counters_of(const BackwardArgs& call) {
  return reinterpret_cast<uint32_t*>(call.d_q_sums + sums_rows<kConfig>(call) * kConfig.d_head);
}

template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE uint32_t* tile_counter(const BackwardArgs& call) {
  static_assert(kConfig.keys_columns > 1, "the second row is no block's first");
  return counters_of<kConfig>(call) + 1;
}

}  // namespace flash::sm90_bwd_fused
