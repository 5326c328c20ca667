// What lies where in the shared memory of the fused kernel, and its barriers.
#pragma once

#include "flash/sm90_bwd/layout.cuh"
#include "flash/sm90_bwd_fused/config.h"

namespace flash::sm90_bwd_fused {

// Blocks of dS, then staged sums of dQ, then all that the two-pass kernel of dK and dV has, then
// the barriers of dS. `base`: of the two-pass kernel's part.
template <FusedBackwardKernelConfig kConfig, typename TheCalls = sm90_bwd::EqualLengths>
struct Layout : sm90_bwd::Layout<kConfig.two_pass(), Variant::kKeys, TheCalls> {
  using TwoPass = sm90_bwd::Layout<kConfig.two_pass(), Variant::kKeys, TheCalls>;
  using Work = typename TheCalls::template Work<Layout>;
  static constexpr bool kInOrder = kConfig.add_by == AddBy::kInOrder;
  static constexpr bool kStaggers = kConfig.splits() && !kInOrder;
  static constexpr int kDsStages = kConfig.ds_stages;
  static constexpr int kDsBytes = kConfig.ds_bytes();
  static constexpr int kStaging = kDsStages * kDsBytes;
  static constexpr int kTwoPass = kStaging + kConfig.staging_bytes();
  static constexpr int kTwoPassBytes = kConfig.two_pass().smem_bytes(Variant::kKeys);
  static_assert(TwoPass::kGroups == FusedBackwardKernelConfig::kGroups);
  static_assert(kDsBytes % 1024 == 0 && kTwoPass % 1024 == 0, "whole swizzle atoms");

  FLASH_DEVICE explicit Layout(uint32_t shared) : TwoPass{shared + kTwoPass} {}

  // A block of dS: for each group a chunk of [queries][its 64 keys], swizzled.
  FLASH_DEVICE uint32_t ds(int stage) const { return start() + stage * kDsBytes; }
  FLASH_DEVICE uint32_t staging(int buffer) const {
    return start() + kStaging + buffer * kConfig.sums_bytes();
  }

  // "Full": every consumer has written its part. "Empty": every consumer has read it.
  FLASH_DEVICE uint32_t ds_full(int stage) const { return ds_barrier(stage); }
  FLASH_DEVICE uint32_t ds_empty(int stage) const { return ds_barrier(kDsStages + stage); }

 private:
  FLASH_DEVICE uint32_t start() const { return this->base - kTwoPass; }
  FLASH_DEVICE uint32_t ds_barrier(int index) const {
    return this->base + kTwoPassBytes + 8 * index;
  }
};

}  // namespace flash::sm90_bwd_fused
