// What becomes of a warp's scores between the two matmuls: the soft cap, and the keys that are not
// seen.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/math.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80_serve {

template <AmpereServeKernelConfig kConfig>
struct ScoreRules {
  static constexpr int kTiles = kConfig.slice_keys() / 8;
  using Scores = float[kTiles][4];

  KeyRange keys[2];  // that this thread's rows see
  int column;        // of this thread's first score
  float tanh_scale;  // 2 / ln 2 * softmax_scale / softcap: the exponent of tanh
  float cap;         // softcap / softmax_scale: the softmax scales what it is given

  // `warp_row`: the warp's first row in the tile. `taken`: other keys are hidden from every row.
  FLASH_DEVICE ScoreRules(const ServeArgs& args, const Tile<kConfig>& tile, const KeyRange& taken,
                          int warp_row, int lane)
      : column(lane % 4 * 2),
        tanh_scale(2.0f * kLog2e * args.softmax_scale * ptx::rcp(args.softcap)),
        cap(args.softcap * ptx::rcp(args.softmax_scale)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keys[half] = tile.rule.of(tile.query(warp_row + half * 8 + lane / 4)).within(taken);
    }
  }

  // tanh(x) = 1 - 2 / (1 + exp(2 x)), exact to a few units of fp32 at 1.
  FLASH_DEVICE void cap_scores(Scores& s) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float exponential = ptx::ex2(s[n][i] * tanh_scale);
        s[n][i] = fmaf(-2.0f * cap, ptx::rcp(1.0f + exponential), cap);
      }
    }
  }

  // Gives the scores of keys that a row does not see the value -inf. `first_key`: of the slice.
  FLASH_DEVICE void hide(Scores& s, int first_key) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool seen = keys[i / 2].has(first_key + column + n * 8 + i % 2);
        s[n][i] = seen ? s[n][i] : kNegativeInfinity;
      }
    }
  }
};

}  // namespace flash::sm80_serve
