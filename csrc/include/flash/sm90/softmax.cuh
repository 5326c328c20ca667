// Online softmax on wgmma accumulators, in fp32 registers (Milakov and Gimelshein 2018;
// FlashAttention-2, algorithm 1).
//
// A thread holds rows g and g + 8 of its warp's 16 (g = lane / 4); four threads share a row. Scores
// stay unscaled: exp(scale * (s - m)) is one FFMA and one EX2. Any m near a row's maximum serves.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/sm90/config.h"
#include "flash/tile/rows.cuh"

namespace flash::sm90 {

template <MaxPolicy kPolicy>
struct RowStatistics {
  // Half of what fp16 holds.
  static constexpr float kLargestLimit = 32768.0f;
  // Sums beyond this are too near to the end of fp32 for a correction.
  static constexpr float kLargestSum = 0x1p100f;
  // Up to this size of m, as an exponent of 2, the exponential of a row's largest score comes out
  // as 1 after rounding to 16 bits.
  static constexpr float kLargeExponent = 1920.0f;
  // Stands for "no key yet": exponentials of masked scores are 0 with it, and any key raises m.
  static constexpr float kNoKey = 0x1.fffffep127f;

  // -m, in the unit of the scores.
  float shift[2] = {kNoKey, kNoKey};
  float sum[2] = {0.0f, 0.0f};  // this thread's columns only
  // m rises when exponentials, or a thread's sum of a block of them, exceed this. A key that
  // outweighs the others of its row then has a weight of exactly 1: rounding a weight of 1.1 to 16
  // bits costs such a row 1 eps (docs/kernels/02).
  float limit[2] = {1.0f, 1.0f};
  bool any_large;  // m of any row, so that scores take the subtraction first; uniform over the warp
  float alpha[2];  // factor for what was accumulated before, valid if `rescale`
  bool rescale;    // uniform over the warp

  // Takes the maxima of a block's scores into account. kFirst: of the tile's blocks. `scale`, here
  // and below: exponents of 2 per unit of the scores, positive.
  template <bool kFirst, int kCount>
  FLASH_DEVICE void raise(const float (&scores)[kCount], float scale) {
    int as_integers[2];
    row_maxima_of_positive(scores, as_integers);
    if constexpr (!kFirst) {
      const bool higher =
          (as_integers[0] >= threshold(0, scale)) | (as_integers[1] >= threshold(1, scale));
      rescale = __any_sync(0xffffffffu, higher);
      if (!rescale) return;
    }
    float largest[2];
    bool rare = (as_integers[0] | as_integers[1]) < 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = __int_as_float(as_integers[half]);
      rare |= fmaxf(largest[half], -shift[half]) * scale >= kLargeExponent;
    }
    any_large = __any_sync(0xffffffffu, rare);
    if (any_large) {
      int negative[2];
      row_maxima_of_negative(scores, negative);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (as_integers[half] < 0) largest[half] = __int_as_float(negative[half]);
      }
    }
    raise_to<kFirst>(largest, scale);
  }

  // The same for scores of which some are known to exceed m.
  template <int kCount>
  FLASH_DEVICE void raise_anyway(const float (&scores)[kCount], float scale) {
    float largest[2];
    row_maxima(scores, largest);
    rescale = any_large = true;
    raise_to<false>(largest, scale);
  }

  // Before `raise` and `exponentiate` of a block that is not the first.
  FLASH_DEVICE void note_large(float scale) {
    any_large = __any_sync(0xffffffffu, is_large(0, scale) || is_large(1, scale));
  }

  // Takes a block into account whose exponentials `p` were computed with an m too low for them, but
  // fit fp32: m rises to its largest score, and everything but the output, which is to be rescaled,
  // is multiplied by what that changes.
  template <int kCount>
  FLASH_DEVICE void correct(float (&p)[kCount], float (&block_sum)[2], float scale) {
    int largest[2];
    row_maxima_of_positive(p, largest);
    const float unit = ptx::rcp(scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float growth = ptx::lg2(fmaxf(__int_as_float(largest[half]), 1.0f));
      move(half, ptx::fma_rn(growth, -unit, shift[half]), scale);
      block_sum[half] *= alpha[half];
    }
    multiply_rows(p);
  }

  // scores -> exp(scale * (score - m)), and their sums over this thread's columns. kAnySize: m may
  // be so large that fp32 holds the difference of two scores, but not their products with the
  // scale. kExponents: scores are exponents of 2 already, with -m in them.
  template <bool kAnySize, bool kExponents = false, int kCount>
  FLASH_DEVICE void exponentiate(float (&scores)[kCount], float scale,
                                 float (&block_sum)[2]) const {
    float offset[2] = {exponent(0, scale), exponent(1, scale)};
    if constexpr (kAnySize) {
      if (any_large) {
        const bool large[2] = {is_large(0, scale), is_large(1, scale)};
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (large[i / 2 % 2]) scores[i] += shift[i / 2 % 2];
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) offset[half] = large[half] ? 0.0f : offset[half];
      }
    }
    float partial[2][2];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& a = scores[i + 2 * half];
        float& b = scores[i + 2 * half + 1];
        a = ptx::ex2(kExponents ? a : ptx::fma_rn(a, scale, offset[half]));
        b = ptx::ex2(kExponents ? b : ptx::fma_rn(b, scale, offset[half]));
        partial[half][0] = i == 0 ? a : partial[half][0] + a;
        partial[half][1] = i == 0 ? b : partial[half][1] + b;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) block_sum[half] = partial[half][0] + partial[half][1];
  }

  // From what the rows have added so far, over about `n_keys` each: half as much again as an
  // average block of kBlockN. That is six times a thread's share.
  template <int kBlockN>
  FLASH_DEVICE void set_limits(int n_keys, float scale) {
    const float factor = 1.5f * kBlockN * ptx::rcp(static_cast<float>(n_keys));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      limit[half] = fminf(fmaxf(quad_sum(sum[half]) * factor, 1.0f), kLargestLimit);
      if (is_large(half, scale)) limit[half] = -1.0f;
    }
  }

  // Whether m must rise for a block. Also for NaN: it may come of an m that stands for no key.
  FLASH_DEVICE bool exceeded(const float (&block_sum)[2]) const {
    return !(block_sum[0] <= limit[0] && block_sum[1] <= limit[1]);
  }

  // Whether it takes the scores again. They are gone: exponentials have taken their place.
  FLASH_DEVICE bool beyond_correction(const float (&block_sum)[2]) const {
    return fminf(limit[0], limit[1]) < 0.0f || block_sum[0] > kLargestSum ||
           block_sum[1] > kLargestSum;
  }

  FLASH_DEVICE void add(const float (&block_sum)[2]) {
    sum[0] += block_sum[0];
    sum[1] += block_sum[1];
  }

  template <int kCount>
  FLASH_DEVICE void rescale_output(float (&o)[kCount]) const {
    if (rescale) multiply_rows(o);
  }

  // Completes the sums over the four threads. inverse: 1 / sum, 0 for a row that sees no key;
  // log_sum_exp: natural logarithm, -inf for such a row.
  FLASH_DEVICE void finish(float (&inverse)[2], float (&log_sum_exp)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(sum[half]);
      const bool empty = total == 0.0f;
      inverse[half] = empty ? 0.0f : ptx::rcp(total);
      log_sum_exp[half] =
          empty ? kNegativeInfinity : (ptx::lg2(total) - exponent(half, scale)) * kLn2;
    }
  }

  template <int kCount>
  FLASH_DEVICE void multiply_rows(float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] *= alpha[i / 2 % 2];
  }

  // -m as an exponent of 2. Rounded before it is used, so that exponentials and rescaling see the
  // same.
  FLASH_DEVICE float exponent(int half, float scale) const {
    return ptx::mul_rn(shift[half], scale);
  }

 private:
  FLASH_DEVICE bool is_large(int half, float scale) const {
    return fabsf(exponent(half, scale)) >= kLargeExponent;
  }

  template <bool kFirst>
  FLASH_DEVICE void raise_to(const float (&largest)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float next = fminf(-largest[half], shift[half]);
      if constexpr (kFirst) {
        shift[half] = next;
      } else {
        move(half, next, scale);
      }
    }
    if (any_large) note_large(scale);
  }

  // -m of a row becomes `next`.
  FLASH_DEVICE void move(int half, float next, float scale) {
    const float from = shift[half];
    const float from_exponent = exponent(half, scale);
    const bool from_large = is_large(half, scale);
    shift[half] = next;
    const bool large = from_large || is_large(half, scale);
    alpha[half] = ptx::ex2(large ? (next - from) * scale : exponent(half, scale) - from_exponent);
    sum[half] *= alpha[half];
  }

  // A block raises m if the largest of its scores, as an integer, is not less. With a negative m
  // that is always so: row_maxima_of_positive does not see which of negative scores is the largest.
  FLASH_DEVICE int threshold(int half, float scale) const {
    float m = -shift[half];
    if (kPolicy == MaxPolicy::kLazy) m += ptx::lg2(fmaxf(limit[half], 1.0f)) * ptx::rcp(scale);
    return m >= 0.0f ? __float_as_int(m) + 1 : static_cast<int>(0x80000000);
  }

  // Floats that are not negative compare as integers do, at two new ones an instruction, and more
  // than all that are negative. A result below 0: the row has none but those.
  template <int kCount>
  FLASH_DEVICE static void row_maxima_of_positive(const float (&s)[kCount], int (&largest)[2]) {
    reduce_rows(s, largest, [](int a, int b) { return max(a, b); });
  }
  // Negative ones compare the other way round.
  template <int kCount>
  FLASH_DEVICE static void row_maxima_of_negative(const float (&s)[kCount], int (&largest)[2]) {
    reduce_rows(s, largest, [](int a, int b) { return min(a, b); });
  }

  template <int kCount>
  FLASH_DEVICE static void row_maxima(const float (&s)[kCount], float (&largest)[2]) {
    int positive[2], negative[2];
    row_maxima_of_positive(s, positive);
    row_maxima_of_negative(s, negative);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = __int_as_float(positive[half] < 0 ? negative[half] : positive[half]);
    }
  }

  template <int kCount, typename Operation>
  FLASH_DEVICE static void reduce_rows(const float (&s)[kCount], int (&result)[2],
                                       Operation operation) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int chain[2];
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        int& running = chain[i / 4 % 2];
        const int a = __float_as_int(s[i + 2 * half]);
        const int b = __float_as_int(s[i + 2 * half + 1]);
        running = i < 8 ? operation(a, b) : operation(operation(running, a), b);
      }
      int x = operation(chain[0], chain[1]);
      x = operation(x, __shfl_xor_sync(0xffffffffu, x, 1));
      result[half] = operation(x, __shfl_xor_sync(0xffffffffu, x, 2));
    }
  }
};

}  // namespace flash::sm90
