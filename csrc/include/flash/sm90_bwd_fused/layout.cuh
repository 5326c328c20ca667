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
  static constexpr bool kCopies = kConfig.copies();
  static constexpr bool kStays = TheCalls::kStays;
  static constexpr bool kStaggers = kConfig.splits() && !kInOrder;
  // How ordered tiles lie (flash/tile/ordered_tiles.cuh).
  static constexpr bool kWideSections = TwoPass::kOwnBytes / TwoPass::kRows < 256;
  static constexpr bool kWideForwards = true;
  static constexpr int kDsStages = kConfig.ds_stages;
  static constexpr int kBuffers = kConfig.staging_buffers();
  static constexpr int kDsBytes = kConfig.ds_bytes();
  static constexpr int kStaging = kDsStages * kDsBytes;
  static constexpr int kTwoPass = kStaging + kConfig.staging_bytes();
  static constexpr int kTwoPassBytes = kConfig.two_pass().smem_bytes(Variant::kKeys);
  static_assert(TwoPass::kGroups == FusedBackwardKernelConfig::kGroups);
  static constexpr int kStay = kTwoPassBytes + 8 * kConfig.n_handover_barriers();
  static_assert(!kInOrder || kBuffers == FusedBackwardKernelConfig::kSenders, "one for each");
  static_assert(kDsBytes % 1024 == 0 && kTwoPass % 1024 == 0, "whole swizzle atoms");
  static_assert(kStay % FusedBackwardKernelConfig::kTileBytes == 0, "read at once");

  // Of a block of dS, what a group writes: [queries][its keys].
  static constexpr int kDsGroupBytes = kDsBytes / FusedBackwardKernelConfig::kGroups;
  static constexpr int kGroupWarps = sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  // How many warps' rows of a gradient such a part has room for.
  static constexpr int kWarpsOfDs = kDsGroupBytes / TwoPass::kWarpBytes < kGroupWarps
                                        ? kDsGroupBytes / TwoPass::kWarpBytes
                                        : kGroupWarps;
  static_assert(kWarpsOfDs * kDsStages >= kGroupWarps);

  FLASH_DEVICE explicit Layout(uint32_t shared) : TwoPass{shared + kTwoPass} {}

  // A block of dS: for each group a chunk of [queries][its 64 keys], swizzled.
  FLASH_DEVICE uint32_t ds(int stage) const { return start() + stage * kDsBytes; }
  FLASH_DEVICE uint32_t staging(int buffer) const {
    return start() + kStaging + buffer * kConfig.sums_bytes();
  }

  // A group's part of it.
  FLASH_DEVICE uint32_t ds(int stage, int group) const { return ds(stage) + group * kDsGroupBytes; }
  // Where a warp of a group stages its rows of dK, in the place of dS that has been read.
  FLASH_DEVICE uint32_t d_k_staging(int group, int warp) const {
    return ds(warp / kWarpsOfDs, group) + warp % kWarpsOfDs * TwoPass::kWarpBytes;
  }
  FLASH_DEVICE uint32_t d_v_staging(int group, int warp) const {
    return this->own2(group) + warp * TwoPass::kWarpBytes;
  }

  // "Full": every consumer has written its part. "Empty": every consumer has read it.
  FLASH_DEVICE uint32_t ds_full(int stage) const { return ds_barrier(stage); }
  FLASH_DEVICE uint32_t ds_empty(int stage) const { return ds_barrier(kDsStages + stage); }
  // A group has filled its part of a staging buffer, and fenced it.
  FLASH_DEVICE uint32_t staged(int buffer, int group) const {
    return ds_barrier(2 * kDsStages + buffer * TwoPass::kGroups + group);
  }

  // Where thread blocks stay: the tile (tiles.cuh). "Empty" of K and V: the tile's matmuls have
  // read them, and nothing that was staged there waits for the copy engine.
  FLASH_DEVICE uint32_t tile() const { return this->base + kStay; }
  FLASH_DEVICE uint32_t tile_full() const { return stay_barrier(0); }
  FLASH_DEVICE uint32_t tile_empty() const { return stay_barrier(1); }
  FLASH_DEVICE uint32_t own1_empty() const { return stay_barrier(2); }
  FLASH_DEVICE uint32_t own2_empty() const { return stay_barrier(3); }
  // "Full" of a staging buffer into which others' sums are brought (sums_rounder.cuh).
  FLASH_DEVICE uint32_t sums_full(int buffer) const { return stay_barrier(4 + buffer); }
  // What a warp keeps there: consumers, by their number, then senders.
  FLASH_DEVICE uint32_t kept(int warp) const {
    return tile() + (1 + warp) * FusedBackwardKernelConfig::kTileBytes;
  }
  FLASH_DEVICE uint32_t kept_by_sender(int sender) const {
    return kept(FusedBackwardKernelConfig::kWarps + sender);
  }

 private:
  FLASH_DEVICE uint32_t start() const { return this->base - kTwoPass; }
  FLASH_DEVICE uint32_t stay_barrier(int index) const {
    return kept_by_sender(FusedBackwardKernelConfig::kSenders) + 8 * index;
  }
  FLASH_DEVICE uint32_t ds_barrier(int index) const {
    return this->base + kTwoPassBytes + 8 * index;
  }
};

}  // namespace flash::sm90_bwd_fused
