// What lies where in the shared memory of a kernel, and its barriers.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm90_bwd/config.h"
#include "flash/tile/gradient_work.cuh"

namespace flash::sm90_bwd {

// Where a copy begins: coordinates of a tensor map, but for the first, which is 0.
struct BoxStart {
  int row;
  int chunk;
  int head;
  int batch;
};

// What the kernels are compiled for: calls whose sequences have equal lengths.
struct EqualLengths {
  // Whether thread blocks may share the query heads of a block of keys.
  static constexpr bool kSplitsHeads = false;
  // Whether thread blocks stay, and take tile after tile. Then kernels are queued early, too
  // (ptx/grid_dependency.cuh).
  static constexpr bool kStays = false;
  template <typename L>
  using Work = flash::Work<L>;
  template <bool kOwnsKeys, int kRows, int kColumns>
  using Mask = BlockMask<kOwnsKeys, kRows, kColumns>;

  // What says which keys a query sees.
  template <typename Own>
  FLASH_DEVICE static const BackwardArgs& rule(const BackwardArgs& call, const Own&) {
    return call;
  }
  // Of kRows rows of a head from `row` on, of the tensors whose rows stay, and of those that pass
  // by.
  template <int kRows, typename Own>
  FLASH_DEVICE static BoxStart own_box(const Own& work, int row, int head) {
    return {row, 0, head, static_cast<int>(work.batch)};
  }
  template <int kRows, typename Own>
  FLASH_DEVICE static BoxStart other_box(const Own& work, int row, int head) {
    return {row, 0, head, static_cast<int>(work.batch)};
  }
  // Of the RowStats, and sums, that a head of the batch has: those of the sequence's first row, and
  // how many rows there are for blocks of kColumns.
  template <typename Own>
  FLASH_DEVICE static int first_stats(const Own&) {
    return 0;
  }
  template <int kColumns>
  FLASH_DEVICE static int64_t stats_rows(const BackwardArgs& call) {
    return row_stats_rows(call.seqlen_q, row_stats_block(kColumns));
  }
};

// Both kernels multiply rows that stay (of tensors "own1" and "own2") with columns that pass by (of
// "other1" and "other2"):
//
//              own1  own2  other1  other2   scores         gradients of weights   results
//   kKeys      K     V     Q       dO       S^T = K Q^T    dP^T = V dO^T          dK, dV
//   kQueries   Q     dO    K       V        S = Q K^T      dP = dO V^T            dQ
template <HopperBackwardKernelConfig kConfig, Variant kVariant, typename TheCalls = EqualLengths>
struct Layout {
  using Calls = TheCalls;
  static constexpr unsigned kSectionBlocks = flash::kSectionBlocks;
  static constexpr bool kStaggers = false;
  static constexpr bool kInOrder = false;
  // Thread blocks of a cluster: the same blocks pass by all of them.
  static constexpr int kBlocks = 1;
  // Whether thread blocks take tile after tile.
  static constexpr bool kStays = false;
  // Whether dS leaves the registers, and who writes it (ScoresConsumer).
  static constexpr bool kSharesDs = false;
  struct DsWriter {};
  // Consumers that multiply with the rows that stay, where one sums dV and another one dK.
  static constexpr int kPartners = 2;
  // Of the rows that stay, k-steps that a consumer has in registers (OwnRows): of own1, of own2.
  static constexpr int kHeldSteps1 = 0;
  static constexpr int kHeldSteps2 = 0;
  // What a matrix descriptor is made of.
  FLASH_DEVICE static uint32_t matrix_address(uint32_t shared) { return shared; }
  static_assert(kVariant == Variant::kKeys || kVariant == Variant::kQueries);
  static constexpr bool kOwnsKeys = kVariant == Variant::kKeys;
  static constexpr BlockShape kShape = kConfig.shape(kVariant);
  static constexpr int kGroups = kConfig.groups(kVariant);
  static constexpr int kRows = kShape.rows;
  static constexpr int kColumns = kShape.columns;
  static constexpr bool kSplitsSums = kConfig.splits_sums(kVariant);
  static constexpr int kStages1 = kShape.stages;  // of other1 and the RowStats
  static constexpr int kStages2 = kConfig.second_stages(kVariant);
  static constexpr int kStatsBytes = kConfig.stats_bytes(kVariant);
  static constexpr int kWeightStages = HopperBackwardKernelConfig::kWeightStages;
  static constexpr int kWeightsBytes = kConfig.weights_bytes(kVariant);
  // Of the 64 rows of a group.
  using Mask =
      typename Calls::template Mask<kOwnsKeys, HopperBackwardKernelConfig::kGroupRows, kColumns>;

  static constexpr int kGroupBytes = HopperBackwardKernelConfig::kGroupRows * kConfig.row_bytes();
  static constexpr int kWarpBytes = kGroupBytes / HopperBackwardKernelConfig::kGroupWarps;
  static constexpr int kChunks = kConfig.row_bytes() / kConfig.swizzle_bytes();  // of a row
  static constexpr int kOwnBytes = kRows * kConfig.row_bytes();
  static constexpr int kOtherBytes = kColumns * kConfig.row_bytes();
  static constexpr int kOther1 = 2 * kOwnBytes;
  static constexpr int kOther2 = kOther1 + kStages1 * kOtherBytes;
  static constexpr int kStats = kOther2 + kStages2 * kOtherBytes;
  static constexpr int kWeights = kStats + kStages1 * kStatsBytes;
  static constexpr int kBarriers = kWeights + kWeightStages * kWeightsBytes;
  static_assert(kBarriers + 8 * kConfig.n_barriers(kVariant) == kConfig.smem_bytes(kVariant));
  static_assert(kGroupBytes % 1024 == 0 && kOtherBytes % 1024 == 0, "whole swizzle atoms");
  static_assert(kStatsBytes % 128 == 0, "where the copy engine may write");

  uint32_t base;

  // Of a group's 64 rows.
  FLASH_DEVICE uint32_t own1(int group) const {
    return base + (kSplitsSums ? 0 : group) * kGroupBytes;
  }
  FLASH_DEVICE uint32_t own2(int group) const { return own1(group) + kOwnBytes; }
  FLASH_DEVICE uint32_t other1(int stage) const { return base + kOther1 + stage * kOtherBytes; }
  FLASH_DEVICE uint32_t other2(int stage) const { return base + kOther2 + stage * kOtherBytes; }
  FLASH_DEVICE uint32_t stats(int stage) const { return base + kStats + stage * kStatsBytes; }
  FLASH_DEVICE uint32_t weights(int stage) const { return base + kWeights + stage * kWeightsBytes; }

  // "Full": the copy engine has written the tile. "Empty": every consumer has read it. The
  // RowStats belong to other1.
  FLASH_DEVICE uint32_t own1_full() const { return barrier(0); }
  FLASH_DEVICE uint32_t own2_full() const { return barrier(1); }
  FLASH_DEVICE uint32_t full1(int stage) const { return barrier(2 + stage); }
  FLASH_DEVICE uint32_t full2(int stage) const { return barrier(2 + kStages1 + stage); }
  FLASH_DEVICE uint32_t empty1(int stage) const { return barrier(kEmpty + stage); }
  FLASH_DEVICE uint32_t empty2(int stage) const { return barrier(kEmpty + kStages1 + stage); }
  // Of the weights that one consumer hands to the other.
  FLASH_DEVICE uint32_t weights_full(int stage) const { return barrier(kHandedOn + stage); }
  FLASH_DEVICE uint32_t weights_empty(int stage) const {
    return barrier(kHandedOn + kWeightStages + stage);
  }
  // All consumers have multiplied with own1 and own2 for the last time.
  FLASH_DEVICE uint32_t own_read() const {
    return barrier(kHandedOn + 2 * HopperBackwardKernelConfig::kWeightStages);
  }

 private:
  static constexpr int kEmpty = 2 + kStages1 + kStages2;
  static constexpr int kHandedOn = kEmpty + kStages1 + kStages2;

  FLASH_DEVICE uint32_t barrier(int index) const { return base + kBarriers + 8 * index; }
};

}  // namespace flash::sm90_bwd
