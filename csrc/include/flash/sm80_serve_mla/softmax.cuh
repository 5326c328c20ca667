// Online softmax of a tile whose rows are shared by several warps: each has a slice of the keys of
// the scores, and some columns of the output of all rows.
//
// In fp32, with the running maximum (Milakov and Gimelshein 2018). Maxima and, at the end, sums go
// from warp to warp through shared memory.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/tile/rows.cuh"
#include "flash/tile/shared_tile.h"

namespace flash::sm80_serve_mla {

template <AmpereMlaKernelConfig kConfig>
class LatentSoftmax {
 public:
  static constexpr int kMTiles = kConfig.B_r / 16;
  static constexpr int kTiles = kConfig.slice_keys() / 8;
  static constexpr int kSlices = kConfig.key_warps();
  using Scores = float[kTiles][4];

  // `stats`: in shared memory, a number of each row from each slice.
  FLASH_DEVICE LatentSoftmax(float scale, float* stats, int warp, int lane)
      : scale_(scale),
        scale_log2_(scale * kLog2e),
        stats_(stats),
        row_warp_(warp % kConfig.row_warps()),
        slice_(warp / kConfig.row_warps()),
        lane_(lane) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) max_[m][0] = max_[m][1] = kNegativeInfinity;
    sum_[0] = sum_[1] = 0.0f;
  }

  // The first row of this thread in a 16-row tile; the other is 8 below.
  FLASH_DEVICE int first_row() const { return lane_ / 4; }

  // Tells the others the largest scores of this warp's rows in its slice.
  FLASH_DEVICE void tell_maxima(const Scores& s) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = kNegativeInfinity;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest = fmaxf(largest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
      tell(half, quad_max(largest));
    }
  }

  // All have told theirs: brings what is accumulated to the new maxima, and turns the scores into
  // weights.
  template <int kOTiles>
  FLASH_DEVICE void update(Scores& s, float (&o)[kMTiles][kOTiles][4]) {
    float own_max[2], own_factor[2];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      float factor[2];
      bool grown = false;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = max_[m][half];
        float largest = before;
#pragma unroll
        for (int i = 0; i < kSlices; ++i) largest = fmaxf(largest, told(m, half, i));
        max_[m][half] = largest;
        grown |= largest > before;
        // Nothing seen so far: -inf - -inf would be NaN.
        const float base = largest == kNegativeInfinity ? 0.0f : largest;
        factor[half] = ptx::ex2((before - base) * scale_log2_);
        if (m == row_warp_) {
          own_max[half] = base;
          own_factor[half] = factor[half];
        }
      }
      if (!__any_sync(0xffffffffu, grown)) continue;
#pragma unroll
      for (int n = 0; n < kOTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][n][i] *= factor[i / 2];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float max_scaled = own_max[half] * scale_log2_;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = ptx::ex2(ptx::fma_rn(s[n][i], scale_log2_, -max_scaled));
          sum += s[n][i];
        }
      }
      sum_[half] = ptx::fma_rn(sum_[half], own_factor[half], sum);
    }
  }

  // Gives the others this warp's weights, rounded. `weights`: shared address of a tile of rows of a
  // block's keys.
  FLASH_DEVICE void tell_weights(const Scores& s, uint32_t weights) const {
    using Weights = SharedTile<kConfig.B_c, true>;
    uint32_t lane = lane_;
    ptx::forget(lane);  // as the operands' addresses
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_warp_ * 16 + half * 8 + lane / 4;
        ptx::st_shared_4<0>(weights + Weights::offset(row, slice_ * kTiles + n) + lane % 4 * 4,
                            ptx::pack<kConfig.dtype>(s[n][2 * half], s[n][2 * half + 1]));
      }
    }
  }

  // At the end, when nobody reads maxima any more: the sums of this warp's rows over its slices.
  FLASH_DEVICE void tell_sums() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) tell(half, quad_sum(sum_[half]));
  }

  // All have told theirs: 1 / sum of a row's weights, and its log-sum-exp (natural logarithm).
  struct End {
    float inverse;
    float lse;
  };
  struct Ends {
    End upper, lower;  // of this thread's rows
  };
  FLASH_DEVICE Ends ends(int m) const { return {end(m, 0), end(m, 1)}; }

 private:
  FLASH_DEVICE End end(int m, int half) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) sum += told(m, half, i);
    return {ptx::rcp(sum), ptx::fma_rn(ptx::lg2(sum), kLn2, max_[m][half] * scale_)};
  }
  FLASH_DEVICE void tell(int half, float value) const {
    if (lane_ % 4 != 0) return;
    stats_[(row_warp_ * 16 + half * 8 + first_row()) * kSlices + slice_] = value;
  }
  FLASH_DEVICE float told(int m, int half, int slice) const {
    return stats_[(m * 16 + half * 8 + first_row()) * kSlices + slice];
  }

  float scale_;
  float scale_log2_;
  float* stats_;
  int row_warp_;
  int slice_;
  int lane_;
  float max_[kMTiles][2];  // of all rows, unscaled
  float sum_[2];           // of this warp's rows: of this thread's columns
};

}  // namespace flash::sm80_serve_mla
