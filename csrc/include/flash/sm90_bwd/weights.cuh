// The softmax's weights P, recomputed from the log-sum-exp, and the gradients dS of the scores.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90_bwd/layout.cuh"
#include "flash/tile/rows.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd {

// RowStats of the queries of a thread's scores, which are its rows or its columns.
template <typename L>
struct QueryStats;

// Queries are the rows: they stay in registers.
template <typename L>
  requires(!L::kOwnsKeys)
struct QueryStats<L> {
  RowStats stats[2];

  // `head`: RowStats of a head's queries; `row`: the thread's first. Blocks of 192 rows may end
  // behind the rows that they are filled up to.
  FLASH_DEVICE QueryStats(const RowStats* head, int row, int n_rows, uint32_t, int) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + 8 * half;
      stats[half] = query < n_rows ? head[query] : RowStats{-kNegativeInfinity, 0.0f};
    }
  }

  FLASH_DEVICE void enter(int) {}

  // Calls body(i, RowStats of its query) for every score of the thread.
  template <typename Body>
  FLASH_DEVICE void for_each(Body&& body) const {
#pragma unroll
    for (int i = 0; i < L::kColumns / 2; ++i) body(i, stats[i / 2 % 2]);
  }
};

// Queries are the columns: they lie in shared memory beside the block that passes by. The four
// lanes of a row have two columns each of every eight.
template <typename L>
  requires(L::kOwnsKeys)
struct QueryStats<L> {
  uint32_t first_stage;
  uint32_t address = 0;

  // `first_stage`: shared address of the first stage's.
  FLASH_DEVICE QueryStats(const RowStats*, int, int, uint32_t first_stage, int lane)
      : first_stage(first_stage + lane % 4 * 2 * int{sizeof(RowStats)}) {}

  FLASH_DEVICE void enter(int stage) { address = first_stage + stage * L::kStatsBytes; }

  template <typename Body>
  FLASH_DEVICE void for_each(Body&& body) const {
    static_for<0, L::kColumns / 8>([&](auto n) {
      constexpr int kOffset = n * 8 * int{sizeof(RowStats)};
      const ptx::Vector16 pair = ptx::ld_shared_16<kOffset>(address);
      const RowStats stats[2] = {{__uint_as_float(pair.word[0]), __uint_as_float(pair.word[1])},
                                 {__uint_as_float(pair.word[2]), __uint_as_float(pair.word[3])}};
#pragma unroll
      for (int i = 0; i < 4; ++i) body(n * 4 + i, stats[i % 2]);
    });
  }
};

// Makes the weights 0 of keys that the query does not see, and what else there is of them. `row`
// and `column`: of the thread's first score, from the first of the mask.
template <typename Rule, typename Mask, int kCount, typename... More>
FLASH_DEVICE void hide(float (&p)[kCount], const Rule& rule, const Mask& mask, int row, int column,
                       More&... more) {
  const auto seen = mask.seen(rule, row, column);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool sees = seen.at(i / 2 % 2 * 8, i / 4 * 8 + i % 2);
    p[i] = sees ? p[i] : 0.0f;
    ((more[i] = sees ? more[i] : 0.0f), ...);
    // Or ptxas works out what all columns see before it hides the first score, and spills.
    if (sizeof...(more) > 0 && i == kCount / 2 - 1) ptx::schedule_fence();
  }
}

}  // namespace flash::sm90_bwd
