// The rows that stay, as a consumer multiplies them with columns that pass by: from shared memory,
// or their first k-steps from registers, for which every step reads less of it.
#pragma once

#include "flash/ptx/ldmatrix.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90_bwd/matmuls.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd {

// 64 rows of a group. kHeld: k-steps (16 elements) that are kept in registers, four each.
template <HopperBackwardKernelConfig kConfig, typename L, int kHeld>
struct OwnRows {
  using Mm = Matmuls<kConfig, L>;
  using Descriptor = typename Mm::Descriptor;
  static constexpr int kSteps = kConfig.d_head / 16;
  static constexpr int kStepsOfChunk = kConfig.swizzle_bytes() / 32;
  static_assert(kConfig.swizzle_bytes() == 128, "lanes XOR three bits");

  uint32_t held[kHeld][4];

  // The rows lie at `own`: called once, when they have come.
  FLASH_DEVICE void load(uint32_t own, int warp, int lane) {
    // Else ptxas would keep, for other matrices, what comes of the lane here.
    ptx::forget(lane);
    const int row = lane % 16;
    const uint32_t at = own + (warp * 16 + row) * 128;
    static_for<0, kHeld>([&](auto step) {
      constexpr int kChunk = step / kStepsOfChunk * L::kRows * 128;
      const int piece = (step % kStepsOfChunk * 2 + lane / 16) ^ row % 8;  // PTX ISA 5.5.7
      ptx::ldmatrix_x4<kChunk>(at + piece * 16, held[step]);
    });
  }

  // scores = own other^T. Asynchronous, as one group.
  FLASH_DEVICE void issue_products(uint32_t own, uint32_t other,
                                   typename Mm::Scores& scores) const {
    const auto rows = Descriptor::k_major(L::matrix_address(own));
    const auto columns = Descriptor::k_major(L::matrix_address(other));
    ptx::wgmma_touch(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeld; ++step) {
      ptx::Wgmma<L::kColumns>::template rs_k<kConfig.dtype>(
          scores, held[step], columns.k_step(step, L::kColumns * 128), step != 0);
    }
#pragma unroll
    for (int step = kHeld; step < kSteps; ++step) {
      ptx::Wgmma<L::kColumns>::template ss<kConfig.dtype>(
          scores, rows.k_step(step, L::kRows * 128), columns.k_step(step, L::kColumns * 128), 1);
    }
    ptx::wgmma_commit_group();
  }
};

template <HopperBackwardKernelConfig kConfig, typename L>
struct OwnRows<kConfig, L, 0> {
  using Mm = Matmuls<kConfig, L>;

  FLASH_DEVICE void load(uint32_t, int, int) {}
  FLASH_DEVICE void issue_products(uint32_t own, uint32_t other,
                                   typename Mm::Scores& scores) const {
    Mm::issue_products(own, other, scores);
  }
};

}  // namespace flash::sm90_bwd
