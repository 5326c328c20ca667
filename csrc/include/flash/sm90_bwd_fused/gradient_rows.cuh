// dK and dV of one warp's keys, from registers to global memory: staged in shared memory where
// nobody needs what is there, stored by the copy engine.
#pragma once

#include "flash/sm90_bwd/epilogue.cuh"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/layout.cuh"

namespace flash::sm90_bwd_fused {

template <FusedBackwardKernelConfig kConfig, typename L>
struct GradientRows {
  using End = sm90_bwd::Epilogue<kConfig.two_pass(), L>;
  using Result = typename sm90_bwd::Matmuls<kConfig.two_pass(), L>::Result;

  const BackwardKernelArgs& args;
  const L& smem;
  const int group;
  const int warp;  // of the group
  const int lane;

  // In the place of dS, which has been multiplied.
  FLASH_DEVICE void store_d_k(const typename L::Work& work, const Result& d_k) const {
    if (args.call.d_k == nullptr) return;
    End::store(d_k, args.call.softmax_scale, smem.d_k_staging(group, warp), args.d_own1,
               rows_of(work), lane);
  }
  // In the place of V.
  FLASH_DEVICE void store_d_v(const typename L::Work& work, const Result& d_v) const {
    if (args.call.d_v == nullptr) return;
    End::store(d_v, 1.0f, smem.d_v_staging(group, warp), args.d_own2, rows_of(work), lane);
  }

  // Of keys that no query sees.
  FLASH_DEVICE void store_zeros(const typename L::Work& work) const {
    Result zeros;
    sm90_bwd::Matmuls<kConfig.two_pass(), L>::clear(zeros);
    store_d_v(work, zeros);
    store_d_k(work, zeros);
  }

  // The place of V, to the next tile's.
  FLASH_DEVICE void give_v_back() const {
    if constexpr (L::kStays) {
      finish();
      if (lane == 0) ptx::mbarrier_arrive(smem.own2_empty());
    }
  }

  // Until the copy engine has read what was staged.
  FLASH_DEVICE void finish() const { End::finish(lane); }

 private:
  // Those that do not exist are not stored.
  FLASH_DEVICE sm90_bwd::BoxStart rows_of(const typename L::Work& work) const {
    const int row = group * sm90_bwd::HopperBackwardKernelConfig::kGroupRows + warp * 16;
    return L::Calls::template own_box<16>(work, work.first_row + row,
                                          static_cast<int>(work.own_head()));
  }
};

}  // namespace flash::sm90_bwd_fused
