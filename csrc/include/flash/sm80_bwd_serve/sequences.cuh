// A sequence as the backward kernels see it: as if it were the only one of a call.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/math.cuh"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/tile/rows.cuh"
#include "flash/tile/sequence_work.cuh"

namespace flash::sm80_bwd_serve {

// With a type of this namespace, where sm80_bwd's kernels find the function below.
struct SequenceArgs : flash::SequenceArgs {
  using flash::SequenceArgs::SequenceArgs;
};

FLASH_DEVICE int64_t head_stats(const SequenceArgs& args, int64_t, int64_t head) {
  return head * args.stats_rows;
}

// What the kernels of sm80_bwd are compiled for here.
struct Sequences {
  static constexpr bool kVary = true;
  using Args = SequenceArgs;
  template <typename L>
  using Work = SequenceWork<L>;
  template <bool kOwnsKeys, int kRows, int kColumns>
  using Mask = SequenceMask<kOwnsKeys, kRows, kColumns>;

  // tanh(x) = 1 - 2 / (1 + exp(2 x)), times what becomes the cap when the weights are scaled: as in
  // the forward pass.
  template <typename L>
  FLASH_DEVICE static void cap(const Args& args, typename L::Scores& s) {
    if (args.softcap == 0.0f) return;
    const float tanh_scale = 2.0f * kLog2e * args.softmax_scale / args.softcap;
    const float cap = args.softcap / args.softmax_scale;
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * L::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float exponential = ptx::ex2(s[m][n][i] * tanh_scale);
          s[m][n][i] = fmaf(-2.0f * cap, ptx::rcp(1.0f + exponential), cap);
        }
      }
    }
  }

  // The slope of tanh is 1 - tanh^2, and tanh what the weight was made of.
  template <typename L, typename Stats>
  FLASH_DEVICE static void pass_cap(const Args& args, const typename L::Scores& p,
                                    const Stats& stats, int stage_offset, typename L::Scores& d_s) {
    if (args.softcap == 0.0f) return;
    const float inverse = 1.0f / (args.softcap * kLog2e);
    stats.for_each(stage_offset, [&](int m, int n, int i, const RowStats& row) {
      const float tanh = (ptx::lg2(p[m][n][i]) + row.lse_log2) * inverse;
      d_s[m][n][i] *= p[m][n][i] == 0.0f ? 0.0f : fmaf(-tanh, tanh, 1.0f);
    });
  }
};

}  // namespace flash::sm80_bwd_serve
