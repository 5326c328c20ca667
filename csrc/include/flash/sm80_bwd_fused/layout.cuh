// What lies where in the shared memory of the large kernel, and which part each warp has.
#pragma once

#include "flash/sm80_bwd/layout.cuh"
#include "flash/sm80_bwd_fused/config.h"
#include "flash/sm80_bwd_fused/split_barrier.cuh"
#include "flash/tile/gradient_work.cuh"
#include "flash/tile/operand.cuh"
#include "flash/tile/shared_tile.h"

namespace flash::sm80_bwd_fused {

// Rows that stay are keys (K and V), and queries (Q and dO) pass by. Warps are in pairs. Of
//
//   S^T, dP^T  a pair has its keys, a warp of it half of the queries of the block
//   dV, dK     the same keys, and half of the head's elements
//   dQ         a warp has 32 queries, and as many of the elements as give all warps as much
template <AmpereFusedBackwardKernelConfig kConfig>
struct Layout {
  using Calls = sm80_bwd::EqualLengths;
  using Args = BackwardArgs;
  using Work = flash::Work<Layout>;
  static constexpr unsigned kSectionBlocks = flash::kSectionBlocks;
  static constexpr bool kStaggers = false;
  static constexpr bool kInOrder = false;
  static constexpr bool kOwnsKeys = true;
  static constexpr int kRows = kConfig.keys_rows;
  static constexpr int kColumns = kConfig.keys_columns;
  using Mask = BlockMask<kOwnsKeys, kRows, kColumns>;
  static constexpr int kThreads = kConfig.n_threads();

  static constexpr int kHalves = 2;
  static constexpr int kPairs = kConfig.keys_warps / kHalves;
  static constexpr int kRowsPerWarp = kRows / kPairs;
  static constexpr int kHalfColumns = kColumns / kHalves;
  static constexpr int kSumsRows = 32;  // queries of a warp's dQ
  static constexpr int kSumsParts = kConfig.keys_warps / (kColumns / kSumsRows);  // of a row
  static_assert(kRows % (16 * kPairs) == 0, "a pair has whole 16-row tiles");
  static_assert(kColumns % kSumsRows == 0 && kConfig.d_head % (16 * kSumsParts) == 0);

  static constexpr int kMTiles = kRowsPerWarp / 16;       // 16-row tiles of a pair
  static constexpr int kDTiles = kConfig.d_head / 16;     // k-tiles of the scores
  static constexpr int kColumnTiles = kHalfColumns / 16;  // of a warp's scores
  static constexpr int kHalfTiles = kDTiles / kHalves;    // of a warp's gradients
  static constexpr int kSumsTiles = kSumsRows / 16;       // of its dQ
  static constexpr int kKeyTiles = kRows / 16;            // k-tiles of dQ
  static constexpr int kSumsColumnTiles = kDTiles / kSumsParts;
  static constexpr int kSums = kSumsTiles * 2 * kSumsColumnTiles * 4;  // of a thread

  using Tile = SharedTile<kConfig.d_head, /*kSwizzled=*/true>;
  using Lane = LaneAddress<Tile>;
  using WeightsTile = SharedTile<kColumns, /*kSwizzled=*/true>;  // P^T or dS^T: a row is a key's
  using WeightsLane = LaneAddress<WeightsTile>;
  using Scores = float[kMTiles][2 * kColumnTiles][4];
  using Weights = Fragment[kMTiles][kColumnTiles];  // the same in 16 bits, as A operands
  using Result = float[kMTiles][2 * kHalfTiles][4];
  using Sums = float[kSumsTiles][2 * kSumsColumnTiles][4];

  // Bytes from the start of the dynamic shared memory.
  static constexpr int kOwnBytes = kRows * Tile::kRowBytes;
  static constexpr int kOtherBytes = kColumns * Tile::kRowBytes;
  static constexpr int kOwn1 = 0;
  static constexpr int kOwn2 = kOwnBytes;
  static constexpr int kP = 2 * kOwnBytes;
  static constexpr int kDs = kP + kConfig.weights_bytes();  // the first block
  static constexpr int kOther1 =                            // of the first stage
      kDs + AmpereFusedBackwardKernelConfig::kDsBlocks * kConfig.weights_bytes();
  static constexpr int kOther2 = kOther1 + kOtherBytes;
  static constexpr int kStats = kOther2 + kOtherBytes;
  static constexpr int kStageBytes = 2 * kOtherBytes + kColumns * int{sizeof(RowStats)};
  static constexpr int kHandedOn = kOther1 + AmpereFusedBackwardKernelConfig::kStages * kStageBytes;
  static constexpr int kDone = kHandedOn + SplitBarrier::kBytes;
  static_assert(kDone + SplitBarrier::kBytes == kConfig.smem_bytes());
  static_assert(kStageBytes % Tile::kSwizzleSpanBytes == 0, "addresses are combined by XOR");
};

}  // namespace flash::sm80_bwd_fused
