// Online softmax on wgmma accumulators, in fp32 registers (Milakov and Gimelshein 2018;
// FlashAttention-2, algorithm 1).
//
// A thread holds rows g and g + 8 of its warp's 16 (g = lane / 4); four threads share a row. Scores
// stay unscaled: exp(scale * (s - m)) is one FFMA and one EX2.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/sm90/config.h"
#include "flash/tile/rows.cuh"

namespace flash::sm90 {

template <MaxPolicy kPolicy>
struct RowStatistics {
  // Growth of the maximum, as an exponent of 2, that m tolerates.
  static constexpr float kLag = kPolicy == MaxPolicy::kExact ? 0.0f : 8.0f;
  // Exponentials beyond this, still half of what fp16 holds, are computed again with a higher m.
  static constexpr float kLargest = 32768.0f;

  // m as an exponent of 2. Scaled here, once, so that exponentials and rescaling see the same
  // rounding.
  float max[2] = {kNegativeInfinity, kNegativeInfinity};
  float sum[2] = {0.0f, 0.0f};  // this thread's columns only
  float alpha[2];               // factor for what was accumulated before, valid if `rescale`
  bool rescale;                 // uniform over the warp

  // Takes the maxima of a block's scores into account.
  template <int kCount>
  FLASH_DEVICE void raise(const float (&scores)[kCount], float scale_log2) {
    float largest[2];
    row_maxima(scores, largest);
    float growth[2];  // NaN for a row without a visible key so far
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = ptx::mul_rn(largest[half], scale_log2);
      growth[half] = largest[half] - max[half];
    }
    if constexpr (kPolicy == MaxPolicy::kExact) {
      rescale = true;
    } else {
      rescale = __any_sync(0xffffffffu, growth[0] > kLag || growth[1] > kLag);
      if (!rescale) return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool raised = growth[half] > kLag;
      alpha[half] = raised ? ptx::ex2(-growth[half]) : 1.0f;
      max[half] = raised ? largest[half] : max[half];
      sum[half] *= alpha[half];
    }
  }

  // scores -> exp(scale * (score - m)), and their sums over this thread's columns.
  template <int kCount>
  FLASH_DEVICE void exponentiate(float (&scores)[kCount], float scale_log2,
                                 float (&block_sum)[2]) const {
    float offset[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row that has seen no key yet has no m, and every exponential shall be 0.
      offset[half] = max[half] == kNegativeInfinity ? 0.0f : -max[half];
    }
    float partial[2][2];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& a = scores[i + 2 * half];
        float& b = scores[i + 2 * half + 1];
        a = ptx::ex2(ptx::fma_rn(a, scale_log2, offset[half]));
        b = ptx::ex2(ptx::fma_rn(b, scale_log2, offset[half]));
        partial[half][0] = i == 0 ? a : partial[half][0] + a;
        partial[half][1] = i == 0 ? b : partial[half][1] + b;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) block_sum[half] = partial[half][0] + partial[half][1];
  }

  // Whether an exponential may be out of range. False for NaN, which no m would mend.
  FLASH_DEVICE static bool overflowed(const float (&block_sum)[2]) {
    return block_sum[0] > kLargest || block_sum[1] > kLargest;
  }

  FLASH_DEVICE void add(const float (&block_sum)[2]) {
    sum[0] += block_sum[0];
    sum[1] += block_sum[1];
  }

  template <int kCount>
  FLASH_DEVICE void rescale_output(float (&o)[kCount]) const {
    if (!rescale) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) o[i] *= alpha[i / 2 % 2];
  }

  // Completes the sums over the four threads. inverse: 1 / sum, 0 for a row that sees no key;
  // log_sum_exp: natural logarithm, -inf for such a row.
  FLASH_DEVICE void finish(float (&inverse)[2], float (&log_sum_exp)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(sum[half]);
      const bool empty = max[half] == kNegativeInfinity;
      inverse[half] = empty ? 0.0f : ptx::rcp(total);
      log_sum_exp[half] = empty ? kNegativeInfinity : (max[half] + ptx::lg2(total)) * kLn2;
    }
  }

 private:
  template <int kCount>
  FLASH_DEVICE static void row_maxima(const float (&s)[kCount], float (&largest)[2]) {
    float chain[2][2];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float x = s[i + 2 * half + j];
          chain[half][j] = i == 0 ? x : fmaxf(chain[half][j], x);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = quad_max(fmaxf(chain[half][0], chain[half][1]));
    }
  }
};

}  // namespace flash::sm90
