// P and dS of a block of queries: from the scores, and the gradients of P, to what the sums'
// matmuls read.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90_bwd/matmuls.cuh"
#include "flash/sm90_bwd/weights.cuh"
#include "flash/sm90_bwd_fused/stats.cuh"

namespace flash::sm90_bwd_fused {

// Of a warp: of a group with 64 keys, and the block of queries that is passing by.
template <FusedBackwardKernelConfig kConfig, typename L>
struct Weighing {
  using Mm = sm90_bwd::Matmuls<kConfig.two_pass(), L>;
  using Calls = typename L::Calls;
  using Mask = typename L::Mask;
  using PairsAhead = RowStats[4][2];
  using LseAhead = float[L::kColumns == 64 ? 16 : 8];  // all, where there are registers
  using DotsAhead = float[8];

  const BackwardKernelArgs& args;
  const L& smem;
  const int group;
  const int warp;  // of the group
  const int lane;
  const float scale_log2;
  const typename L::Work* work = nullptr;  // of the tile
  Place place;                             // the block of queries
  StatsAhead<L> stats;
  typename Mm::Scores p;
  typename Mm::Scores d_s;
  typename Mm::Weights weights;    // P in 16 bits
  typename Mm::Weights d_weights;  // dS in 16 bits

  FLASH_DEVICE Weighing(const BackwardKernelArgs& launch_args, const L& layout, int group_index)
      : args(launch_args),
        smem(layout),
        group(group_index),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        scale_log2(launch_args.call.softmax_scale * kLog2e),
        stats(nullptr, 0, 0, layout.stats(0), lane) {}

  FLASH_DEVICE const auto& rule() const { return Calls::rule(args.call, *work); }
  FLASH_DEVICE Mask mask() const {
    const int group_row =
        work->first_row + group * sm90_bwd::HopperBackwardKernelConfig::kGroupRows;
    return {rule(), group_row, place.block * L::kColumns};
  }

  // P from the scores, and dS from it and the gradients of P.
  template <typename Rule>
  FLASH_DEVICE void differentiate(const Rule& rule, const Mask& mask, PairsAhead& ahead) {
    stats.for_each(ahead, [&](int i, const RowStats& row) {
      p[i] = ptx::ex2(ptx::fma_rn(p[i], scale_log2, -row.lse_log2));
      d_s[i] = p[i] * (d_s[i] - row.dot);
    });
    if (mask.hides_something) {
      // Behind the exponentials, since what belongs to a key that the query does not see may be
      // infinite.
      const int own = static_cast<int>(ptx::hidden(lane));  // else the loop keeps the place
      sm90_bwd::hide(p, rule, mask, warp * 16 + own / 4, own % 4 * 2, d_s);
    }
    __syncwarp();  // all lanes have read their RowStats, which go with Q
    Mm::pack(p, weights);
    Mm::pack(d_s, d_weights);
  }

  // P alone.
  template <typename Rule>
  FLASH_DEVICE void weigh(const Rule& rule, const Mask& mask, const LseAhead& first_lse_log2) {
    stats.for_each_lse_log2(first_lse_log2, [&](int i, float lse_log2) {
      p[i] = ptx::ex2(ptx::fma_rn(p[i], scale_log2, -lse_log2));
    });
    if (mask.hides_something) {
      sm90_bwd::hide(p, rule, mask, warp * 16 + lane / 4, lane % 4 * 2);
    }
    if constexpr (!kConfig.delays_sums()) Mm::pack(p, weights);
  }

  // dS alone, from P and its gradients.
  template <typename Rule>
  FLASH_DEVICE void derive(const Rule& rule, const Mask& mask, const DotsAhead& first_dots) {
    stats.for_each_dot(first_dots, [&](int i, float dot) { d_s[i] = p[i] * (d_s[i] - dot); });
    if (mask.hides_something) {
      // Without registers to spare the place is worked out again.
      const int own = kConfig.delays_sums() ? static_cast<int>(ptx::hidden(lane)) : lane;
      sm90_bwd::hide(d_s, rule, mask, warp * 16 + own / 4, own % 4 * 2);
    }
    __syncwarp();  // all lanes have read their RowStats, which go with Q
    Mm::pack(d_s, d_weights);
    if constexpr (kConfig.delays_sums()) Mm::pack(p, weights);
  }
};

}  // namespace flash::sm90_bwd_fused
