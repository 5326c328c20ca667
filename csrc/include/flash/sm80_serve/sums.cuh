// What warps leave of their rows at the end of a tile, in shared memory.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm80_serve/config.h"

namespace flash::sm80_serve {

// Sums of 16 rows over a warp's keys, normalised, and their log-sum-exps. The sums lie in a stage
// of the ring, where the warps have read last, each in the slice that it has read itself. Columns
// are swizzled, so that the rows of a fragment lie in different banks.
template <AmpereServeKernelConfig kConfig>
struct Sums {
  float* sums;  // of all warps
  float* lses;

  FLASH_DEVICE float4 of(int key_warp, int row, int column) const {
    return *reinterpret_cast<const float4*>(sums + place(key_warp, row, column));
  }
  FLASH_DEVICE float lse(int key_warp, int row) const { return lses[key_warp * kConfig.B_r + row]; }

  // `n_rows`: that exist.
  template <typename Mm, typename Softmax>
  FLASH_DEVICE void store(const typename Mm::Output& o, Softmax& softmax, int warp, int lane,
                          int n_rows) const {
    float inverse[1][2];
    float log_sum_exp[1][2];
    softmax.finish(inverse, log_sum_exp);
    const int key_warp = warp / kConfig.row_warps();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first_row = warp % kConfig.row_warps() * 16 + half * 8;
      if (first_row >= n_rows) break;  // of eight heads and one query, half of the tile
      const int row = first_row + lane / 4;
#pragma unroll
      for (int n = 0; n < 2 * Mm::kDTiles; ++n) {
        two_at(key_warp, row, n * 8 + lane % 4 * 2) = {o[0][n][2 * half] * inverse[0][half],
                                                       o[0][n][2 * half + 1] * inverse[0][half]};
      }
      if (lane % 4 == 0) lses[key_warp * kConfig.B_r + row] = log_sum_exp[0][half];
    }
  }

 private:
  // Prompts of wide heads, before sm_90: by bytes from where a row begins. By columns NVRTC, whose
  // addresses have 64 bits, shifts each of them by itself.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool kInBytes = kConfig.is_wide() && !kConfig.shares_keys();
#else
  static constexpr bool kInBytes = false;
#endif

  FLASH_DEVICE float2& two_at(int key_warp, int row, int column) const {
    if constexpr (!kInBytes) {
      return *reinterpret_cast<float2*>(sums + place(key_warp, row, column));
    }
    char* const first = reinterpret_cast<char*>(sums + place(key_warp, row, 0) - row % 4 * 8);
    return *reinterpret_cast<float2*>(first + (column * 4 ^ row % 4 * 32));
  }
  FLASH_DEVICE static int place(int key_warp, int row, int column) {
    return (key_warp * kConfig.slice_keys() + row) * kConfig.d_head + (column ^ row % 4 * 8);
  }
};

}  // namespace flash::sm80_serve
