// The matmuls of the fused backward pass on one block of queries, per warp.
#pragma once

#include "flash/sm80_bwd/matmuls.cuh"
#include "flash/sm80_bwd_fused/layout.cuh"

namespace flash::sm80_bwd_fused {

template <AmpereFusedBackwardKernelConfig kConfig, typename L>
struct Matmuls : sm80_bwd::Matmuls<kConfig.dtype, L> {
  using Base = sm80_bwd::Matmuls<kConfig.dtype, L>;
  using Lane = typename L::Lane;
  using WeightsLane = typename L::WeightsLane;

  FLASH_DEVICE static void round(typename L::Weights& weights, const typename L::Scores& scores) {
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < L::kColumnTiles; ++n) {
        Base::pack(weights[m][n], scores[m][2 * n], scores[m][2 * n + 1]);
      }
    }
  }

  // result += weights other, of the half of the queries that the warp has weighed. `other`: their
  // rows, in the warp's half of the columns.
  FLASH_DEVICE static void accumulate(typename L::Result& result,
                                      const typename L::Weights& weights, const Lane& other) {
    static_for<0, L::kColumnTiles>([&](auto t) {
      Fragment a[L::kMTiles];
#pragma unroll
      for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = weights[m][t][i];
      }
      Base::template add_rows<t>(result, a, other);
    });
  }

  // The same of the other half: `weights` are those of the pair's other warp, in shared memory.
  FLASH_DEVICE static void accumulate(typename L::Result& result, const WeightsLane& weights,
                                      const Lane& other) {
    static_for<0, L::kColumnTiles>([&](auto t) {
      constexpr int kTile = t;
      Fragment a[L::kMTiles];
      static_for<0, L::kMTiles>([&](auto m) { weights.template load<0, m, kTile, false>(a[m]); });
      Base::template add_rows<kTile>(result, a, other);
    });
  }

  // sums = dS K, over all keys of the thread block: dS^T lies in shared memory.
  FLASH_DEVICE static void query_sums(typename L::Sums& sums, const WeightsLane& ds,
                                      const Lane& keys) {
    Base::clear(sums);
    static_for<0, L::kKeyTiles>([&](auto t) {
      constexpr int kTile = t;
      Fragment a[L::kSumsTiles];
      static_for<0, L::kSumsTiles>([&](auto m) { ds.template load<0, kTile, m, true>(a[m]); });
      Base::template add_rows<kTile>(sums, a, keys);
    });
  }
};

}  // namespace flash::sm80_bwd_fused
