// The matmuls of a warpgroup on one block that passes by.
#pragma once

#include "flash/sm90/config.h"
#include "flash/sm90/matmuls.cuh"
#include "flash/sm90_bwd/layout.cuh"

namespace flash::sm90_bwd {

// The kernel of a forward pass whose tiles have the same shapes: own rows in the place of Q, and
// those that pass by in that of K and V.
template <HopperBackwardKernelConfig kConfig, typename L>
constexpr sm90::HopperForwardKernelConfig forward_config() {
  return {.dtype = kConfig.dtype,
          .d_head = kConfig.d_head,
          .block_n = L::kColumns,
          .n_mma_groups = L::kGroups,
          .n_buffers = L::kStages1,
          .n_q_buffers = 1,
          .max_policy = sm90::MaxPolicy::kExact,
          .overlap = false,
          .ping_pong = false,
          .o_in_q = true};
}

template <HopperBackwardKernelConfig kConfig, typename L>
struct Matmuls : sm90::Matmuls<forward_config<kConfig, L>()> {
  using Forward = sm90::Matmuls<forward_config<kConfig, L>()>;
  using Descriptor = typename Forward::Descriptor;
  using Scores = typename Forward::Scores;
  using Weights = typename Forward::Probabilities;
  using Result = typename Forward::Output;

  // scores = own other^T. Asynchronous, as one group: `scores` may be touched after wait().
  FLASH_DEVICE static void issue_products(uint32_t own, uint32_t other, Scores& scores) {
    Forward::issue_scores({Descriptor::k_major(L::matrix_address(own)),
                           Descriptor::k_major(L::matrix_address(other))},
                          scores);
  }

  // result += weights other. Asynchronous, as one group.
  FLASH_DEVICE static void issue_sum(const Weights& weights, uint32_t other, Result& result) {
    const auto rows =
        Descriptor::mn_major(L::matrix_address(other), L::kColumns * kConfig.swizzle_bytes());
    ptx::wgmma_touch(result);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Forward::kSteps; ++step) {
      ptx::Wgmma<kConfig.d_head>::template rs<kConfig.dtype>(result, weights[step],
                                                             rows.mn_step(step), 1);
    }
    ptx::wgmma_commit_group();
  }
};

}  // namespace flash::sm90_bwd
