// Online softmax of a tile's rows, by the warpgroup that has their scores, in fp32 with the running
// maximum (Milakov and Gimelshein 2018).
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm90_serve_mla {

// What was accumulated of this thread's two rows, brought to new maxima.
template <int kCount>
FLASH_DEVICE void rescale(float (&o)[kCount], float upper, float lower) {
  if (!__any_sync(0xffffffffu, upper != 1.0f || lower != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= i / 2 % 2 == 0 ? upper : lower;
}

// Of this thread's two rows; element order of the scores as in ptx/wgmma.cuh.
class Softmax {
 public:
  float factor[2];  // of what was accumulated before the last update

  FLASH_DEVICE explicit Softmax(float scale) : scale_(scale), scale_log2_(scale * kLog2e) {
    max_[0] = max_[1] = kNegativeInfinity;
    sum_[0] = sum_[1] = 0.0f;
  }

  // Turns the scores of a block into weights.
  template <int kCount>
  FLASH_DEVICE void update(float (&s)[kCount]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max_[half];
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
      largest = quad_max(largest);
      // Nothing seen so far: -inf - -inf would be NaN.
      const float base = largest == kNegativeInfinity ? 0.0f : largest;
      factor[half] = ptx::ex2((max_[half] - base) * scale_log2_);
      max_[half] = largest;
      const float max_scaled = base * scale_log2_;
      float sum = 0.0f;
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
#pragma unroll
        for (int j = i; j < i + 2; ++j) {
          s[j] = ptx::ex2(ptx::fma_rn(s[j], scale_log2_, -max_scaled));
          sum += s[j];
        }
      }
      sum_[half] = ptx::fma_rn(sum_[half], factor[half], sum);
    }
  }

  // 1 / sum of a row's weights, and its log-sum-exp (natural logarithm).
  FLASH_DEVICE float2 end(int half) const {
    const float sum = quad_sum(sum_[half]);
    return {ptx::rcp(sum), ptx::fma_rn(ptx::lg2(sum), kLn2, max_[half] * scale_)};
  }

 private:
  float scale_;
  float scale_log2_;
  float max_[2];  // unscaled
  float sum_[2];  // of this thread's columns
};

}  // namespace flash::sm90_serve_mla
