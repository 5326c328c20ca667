// The softmax's weights P, recomputed from the log-sum-exp, and the gradients dS of the scores.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/tile/rows.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_bwd {

// Where the RowStats of a head's queries begin.
FLASH_DEVICE int64_t head_stats(const BackwardArgs& args, int64_t batch, int64_t head) {
  return (batch * args.n_heads_q + head) * row_stats_rows(args.seqlen_q);
}

// RowStats of the queries of a thread's fragments, which are its rows or its columns.
template <typename L>
struct QueryStats;

// Queries are the rows: they stay in registers.
template <typename L>
  requires(!L::kOwnsKeys)
struct QueryStats<L> {
  RowStats stats[L::kMTiles][2];

  // `first_row`: of the warp, in the argument record's row_stats. `n_rows`: that exist from there.
  FLASH_DEVICE QueryStats(const RowStats* first_row, int n_rows, uint32_t, int lane) {
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        // Behind the only sequence a head's RowStats are filled up to whole blocks.
        if constexpr (L::Calls::kVary) {
          constexpr RowStats kNone = {.lse_log2 = -kNegativeInfinity, .dot = 0.0f};
          stats[m][half] = row < n_rows ? first_row[row] : kNone;
        } else {
          stats[m][half] = first_row[row];
        }
      }
    }
  }

  // Calls body(m, n, i, RowStats of its query) for every score of the thread.
  template <typename Body>
  FLASH_DEVICE void for_each(int, Body&& body) const {
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * L::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) body(m, n, i, stats[m][i / 2]);
      }
    }
  }
};

// Queries are the columns: they lie in shared memory beside the block that passes by. The four
// lanes of a row have two columns each of every eight.
template <typename L>
  requires(L::kOwnsKeys)
struct QueryStats<L> {
  uint32_t address;

  // `first_stage`: shared address of the first stage.
  FLASH_DEVICE QueryStats(const RowStats*, int, uint32_t first_stage, int lane)
      : address(first_stage + L::kStats + lane % 4 * 2 * int{sizeof(RowStats)}) {}

  // `stage_offset`: from the first stage to that of the block.
  template <typename Body>
  FLASH_DEVICE void for_each(int stage_offset, Body&& body) const {
    static_for<0, 2 * L::kColumnTiles>([&](auto n) {
      constexpr int kOffset = n * 8 * int{sizeof(RowStats)};
      const ptx::Vector16 pair = ptx::ld_shared_16<kOffset>(address + stage_offset);
      const RowStats stats[2] = {{__uint_as_float(pair.word[0]), __uint_as_float(pair.word[1])},
                                 {__uint_as_float(pair.word[2]), __uint_as_float(pair.word[3])}};
#pragma unroll
      for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) body(m, n, i, stats[i % 2]);
      }
    });
  }
};

// Makes the weights 0 of keys that the query does not see. `row` and `column`: of the thread's
// first element, in the block.
template <typename L>
FLASH_DEVICE void hide(typename L::Scores& p, const typename L::Args& args,
                       const typename L::Mask& mask, int row, int column) {
  const auto seen = mask.seen(args, row, column);
#pragma unroll
  for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 2 * L::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[m][n][i] = seen.at(m * 16 + i / 2 * 8, n * 8 + i % 2) ? p[m][n][i] : 0.0f;
      }
    }
  }
}

}  // namespace flash::sm80_bwd
