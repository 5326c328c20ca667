// Online softmax over the key dimension, in fp32 registers (Milakov and Gimelshein 2018;
// FlashAttention-2, algorithm 1). A warp owns kMTiles x 16 query rows; a thread holds, of every
// 16-row tile, rows g and g + 8 (g = lane / 4), four threads share a row.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80 {

// kFolded (`optimized_softmax`): scores stay unscaled and exp(scale * (s - m)) is one FFMA and one
// EX2, and m follows the row's maximum only when an exponential would be more than kLimit times
// what an average block has added to the row. The softmax is the same for every m, but a weight is
// exact only where its score is m: one that outweighs a block shall be. On random inputs this
// leaves one rescale of the output per row instead of one in every second block. Otherwise scores
// are scaled first, the exponent is a subtraction, a multiplication and an EX2, and m is the
// running maximum.
template <int kMTiles, bool kFolded>
struct OnlineSoftmax {
  static constexpr float kLimit = 1.5f;
  static constexpr float kLargestLimit = 0x1p8f;  // far inside the range of fp16

  float row_max[kMTiles][2];  // m, in the unit of the stored scores: unscaled if kFolded
  float row_sum[kMTiles][2];  // this thread's columns only, until finish()
  float scale;
  float scale_log2;

  FLASH_DEVICE explicit OnlineSoftmax(float softmax_scale)
      : scale(softmax_scale), scale_log2(softmax_scale * kLog2e) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max[m][half] = kNegativeInfinity;
        row_sum[m][half] = 0.0f;
      }
    }
  }

  // Turns the scores of one KV block into exp(scale * (score - row_max)), updates the row
  // statistics and rescales the output accumulated so far. kFirst: nothing is accumulated yet, so
  // nothing is rescaled. kMasked: all scores of a row may be -inf so far; its exponentials are 0.
  // n_before: blocks before this one.
  template <bool kFirst, bool kMasked, int kSTiles, int kOTiles>
  FLASH_DEVICE void update(float (&scores)[kMTiles][kSTiles][4], float (&o)[kMTiles][kOTiles][4],
                           int n_before) {
    if constexpr (!kFolded) scale_scores(scores);
    float block_max[kMTiles][2];
    row_maxima(scores, block_max);

    if constexpr (kFirst) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) row_max[m][half] = block_max[m][half];
      }
    } else {
      float growth[kMTiles][2];  // of the maxima, as exponents of 2; all rows before the branches
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          growth[m][half] = (block_max[m][half] - row_max[m][half]) * exponent_scale();
        }
      }
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) rescale(m, block_max[m], growth[m], o[m], n_before);
    }
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = row_max[m][half];
        if (kMasked && max == kNegativeInfinity) max = 0.0f;  // -inf - -inf would be NaN
        const float sum = exponentiate(scores[m], half, max);
        row_sum[m][half] = kFirst ? sum : row_sum[m][half] + sum;
      }
    }
  }

  // Completes the row sums over the four threads; returns 1 / sum through `inverse` and writes the
  // log-sum-exp (natural logarithm) of every row.
  FLASH_DEVICE void finish(float (&inverse)[kMTiles][2], float (&log_sum_exp)[kMTiles][2]) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(row_sum[m][half]);
        inverse[m][half] = ptx::rcp(sum);
        const float scaled_max = kFolded ? row_max[m][half] * scale : row_max[m][half];
        log_sum_exp[m][half] = ptx::fma_rn(ptx::lg2(sum), kLn2, scaled_max);
      }
    }
  }

 private:
  // Factor between the stored scores and the argument of 2^x.
  FLASH_DEVICE float exponent_scale() const { return kFolded ? scale_log2 : kLog2e; }

  template <int kSTiles>
  FLASH_DEVICE void scale_scores(float (&s)[kMTiles][kSTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = ptx::mul_rn(s[m][n][i], scale);
      }
    }
  }

  // Largest score of every row of the block. All rows advance together, so that a row's chain of
  // maxima hides behind the others'.
  template <int kSTiles>
  FLASH_DEVICE static void row_maxima(const float (&s)[kMTiles][kSTiles][4],
                                      float (&largest)[kMTiles][2]) {
#pragma unroll
    for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float pair = fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]);
          largest[m][half] = n == 0 ? pair : fmaxf(largest[m][half], pair);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) largest[m][half] = quad_max(largest[m][half]);
    }
  }

  // Exponentiates one row in place and returns the sum of this thread's columns. Two chains of
  // additions rather than one: the single chain outlived the P V matmul and held all of its inputs
  // in registers.
  template <int kSTiles>
  FLASH_DEVICE float exponentiate(float (&s)[kSTiles][4], int half, float max) const {
    const float max_scaled = max * scale_log2;
    float sum[2];
#pragma unroll
    for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        if constexpr (kFolded) {
          s[n][i] = ptx::ex2(ptx::fma_rn(s[n][i], scale_log2, -max_scaled));
        } else {
          s[n][i] = ptx::ex2(ptx::mul_rn(s[n][i] - max, kLog2e));
        }
      }
      const float pair = s[n][2 * half] + s[n][2 * half + 1];
      sum[n % 2] = n < 2 ? pair : sum[n % 2] + pair;
    }
    return sum[0] + sum[1];
  }

  // Raises m of the rows of one 16-row tile whose maximum has grown enough, and brings what is
  // accumulated in them to the new m. Whether a row is raised depends on that row alone; the tile
  // is skipped when none is.
  template <int kOTiles>
  FLASH_DEVICE void rescale(int m, const float (&block_max)[2], const float (&growth)[2],
                            float (&o)[kOTiles][4], int n_before) {
    if (!__any_sync(0xffffffffu, growth[0] > 0.0f || growth[1] > 0.0f)) return;
    [[maybe_unused]] float lag[2];  // what m may be behind, as exponents of 2
    if constexpr (kFolded) {
      const float factor = kLimit * ptx::rcp(static_cast<float>(n_before));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float limit = quad_sum(row_sum[m][half]) * factor;
        lag[half] = ptx::lg2(fminf(fmaxf(limit, 1.0f), kLargestLimit));
      }
      if (!__any_sync(0xffffffffu, growth[0] > lag[0] || growth[1] > lag[1])) return;
    }
    float alpha[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kFolded) {
        const bool raised = growth[half] > lag[half];
        alpha[half] = raised ? ptx::ex2(-growth[half]) : 1.0f;
        row_max[m][half] = raised ? block_max[half] : row_max[m][half];
      } else {
        alpha[half] = ptx::ex2(fminf(-growth[half], 0.0f));
        row_max[m][half] = fmaxf(block_max[half], row_max[m][half]);
      }
      // Not a plain product: fused with the next sum in some configurations only, it would round
      // differently in them.
      row_sum[m][half] = ptx::mul_rn(row_sum[m][half], alpha[half]);
    }
#pragma unroll
    for (int n = 0; n < kOTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] *= alpha[i / 2];
    }
  }
};

}  // namespace flash::sm80
