// The matmuls of the backward pass on one block that passes by, per warp.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/mma.cuh"
#include "flash/sm80_bwd/layout.cuh"

namespace flash::sm80_bwd {

template <DType kDType, typename L>
struct Matmuls {
  using Lane = typename L::Lane;
  using Scores = typename L::Scores;
  using Result = typename L::Result;

  // scores = own other^T, over the head dimension.
  FLASH_DEVICE static void products(Scores& scores, const Lane& own, const Lane& other) {
    clear(scores);
    static_for<0, L::kDTiles>([&](auto t) {
      constexpr int kTile = t;
      Fragment a[L::kMTiles];
      static_for<0, L::kMTiles>([&](auto m) { own.template load<0, m, kTile, false>(a[m]); });
      static_for<0, L::kColumnTiles>([&](auto n) {
        Fragment b;
        other.template load<0, n, kTile, false>(b);
#pragma unroll
        for (int m = 0; m < L::kMTiles; ++m) {
          ptx::mma_m16n8k16<kDType>(scores[m][2 * n], a[m], b[0], b[1]);
          ptx::mma_m16n8k16<kDType>(scores[m][2 * n + 1], a[m], b[2], b[3]);
        }
      });
    });
  }

  // result += weights other, over the rows of `other`; the weights are rounded to 16 bits.
  FLASH_DEVICE static void accumulate(Result& result, const Scores& weights, const Lane& other) {
    static_for<0, L::kColumnTiles>([&](auto t) {
      constexpr int kTile = t;
      Fragment a[L::kMTiles];
#pragma unroll
      for (int m = 0; m < L::kMTiles; ++m) pack(a[m], weights[m][2 * t], weights[m][2 * t + 1]);
      add_rows<kTile>(result, a, other);
    });
  }

  // result += a * the kTile-th 16 rows of `other`.
  template <int kTile, int kMTiles, int kNTiles>
  FLASH_DEVICE static void add_rows(float (&result)[kMTiles][kNTiles][4],
                                    const Fragment (&a)[kMTiles], const Lane& other) {
    static_for<0, kNTiles / 2>([&](auto n) {
      Fragment b;
      other.template load<0, kTile, n, true>(b);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        ptx::mma_m16n8k16<kDType>(result[m][2 * n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<kDType>(result[m][2 * n + 1], a[m], b[2], b[3]);
      }
    });
  }

  template <int kMTiles, int kTiles>
  FLASH_DEVICE static void clear(float (&c)[kMTiles][kTiles][4]) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
      }
    }
  }

  // Two neighbouring 16x8 accumulators are, rounded, exactly one 16x16 A operand.
  FLASH_DEVICE static void pack(Fragment& a, const float (&left)[4], const float (&right)[4]) {
    a[0] = ptx::pack<kDType>(left[0], left[1]);
    a[1] = ptx::pack<kDType>(left[2], left[3]);
    a[2] = ptx::pack<kDType>(right[0], right[1]);
    a[3] = ptx::pack<kDType>(right[2], right[3]);
  }
};

}  // namespace flash::sm80_bwd
