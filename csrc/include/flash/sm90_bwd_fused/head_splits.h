// How the query heads that share a block of keys are shared out once more.
//
// Plain C++20 (no CUDA), as config.h: the launcher asks it, too.
#pragma once

#include <cstdint>

#include "flash/core/backward_args.h"

namespace flash::sm90_bwd_fused {

// Thread blocks that a launch should have: about one for each multiprocessor, and with a mask,
// which leaves some with next to nothing, twice as many. What they leave for each other is 1 KB for
// each element of the head and thread block: 34 MB at most.
constexpr int kWantedBlocks = 128;

constexpr int64_t key_blocks(const BackwardArgs& args, int keys_rows) {
  const int64_t of_head = (int64_t{args.seqlen_k} + keys_rows - 1) / keys_rows;
  return of_head * args.n_heads_kv * args.batch;
}

// Among how many thread blocks the query heads of each block of keys are shared out: as many as a
// launch can have and each has equally many of them.
constexpr int head_splits(const BackwardArgs& args, int keys_rows) {
  const int64_t n_blocks = key_blocks(args, keys_rows);
  const int group = args.n_heads_q / args.n_heads_kv;
  const int wanted = (args.causal != 0 ? 2 : 1) * kWantedBlocks;
  int splits = 1;
  for (int n = 2; n <= group && n * n_blocks <= wanted; ++n) {
    if (group % n == 0) splits = n;
  }
  return splits;
}

}  // namespace flash::sm90_bwd_fused
