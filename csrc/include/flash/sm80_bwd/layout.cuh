// What lies where in the shared memory of a kernel, and which part of a block each warp has.
#pragma once

#include "flash/sm80_bwd/config.h"
#include "flash/tile/gradient_work.cuh"
#include "flash/tile/operand.cuh"
#include "flash/tile/shared_tile.h"

namespace flash::sm80_bwd {

// What the kernels are compiled for: calls whose sequences have equal lengths. (What serves
// compiles them for others.)
struct EqualLengths {
  static constexpr bool kVary = false;
  using Args = BackwardArgs;
  template <typename L>
  using Work = flash::Work<L>;
  template <bool kOwnsKeys, int kRows, int kColumns>
  using Mask = BlockMask<kOwnsKeys, kRows, kColumns>;

  // What is done to scores before their weights, and to the weights' gradients behind.
  template <typename L>
  FLASH_DEVICE static void cap(const Args&, typename L::Scores&) {}
  template <typename L, typename Stats>
  FLASH_DEVICE static void pass_cap(const Args&, const typename L::Scores&, const Stats&, int,
                                    typename L::Scores&) {}
};

// Both kernels multiply rows that stay (of tensors "own1" and "own2") with columns that pass by (of
// "other1" and "other2"):
//
//              own1  own2  other1  other2   scores         gradients of weights   results
//   kKeys      K     V     Q       dO       S^T = K Q^T    dP^T = V dO^T          dV, dK
//   kQueries   Q     dO    K       V        S = Q K^T      dP = dO V^T            dQ
template <AmpereBackwardKernelConfig kConfig, Variant kVariant, typename TheCalls = EqualLengths>
struct Layout {
  using Calls = TheCalls;
  using Args = typename Calls::Args;
  using Work = typename Calls::template Work<Layout>;
  static constexpr unsigned kSectionBlocks = flash::kSectionBlocks;
  static constexpr bool kStaggers = false;
  static constexpr bool kInOrder = false;
  static_assert(kVariant == Variant::kKeys || kVariant == Variant::kQueries);
  static constexpr bool kOwnsKeys = kVariant == Variant::kKeys;
  static constexpr BlockShape kShape = kConfig.shape(kVariant);
  static constexpr int kRows = kShape.rows;
  static constexpr int kColumns = kShape.columns;
  using Mask = typename Calls::template Mask<kOwnsKeys, kRows, kColumns>;
  static constexpr int kThreads = kConfig.n_threads(kVariant);
  static constexpr int kRowsPerWarp = kRows / kShape.warps;
  static_assert(kRows % (16 * kShape.warps) == 0, "a warp has whole 16-row tiles");
  static_assert(kColumns % 16 == 0, "a block that passes by is whole k-tiles");

  static constexpr int kMTiles = kRowsPerWarp / 16;    // 16-row tiles of a warp
  static constexpr int kDTiles = kConfig.d_head / 16;  // k-tiles of the scores
  static constexpr int kColumnTiles = kColumns / 16;   // k-tiles of the results

  using Tile = SharedTile<kConfig.d_head, /*kSwizzled=*/true>;
  using Lane = LaneAddress<Tile>;
  using Scores = float[kMTiles][2 * kColumnTiles][4];
  using Result = float[kMTiles][2 * kDTiles][4];

  // Bytes from the start of the dynamic shared memory.
  static constexpr int kOwnBytes = kRows * Tile::kRowBytes;
  static constexpr int kOtherBytes = kColumns * Tile::kRowBytes;
  static constexpr int kOwn1 = 0;
  static constexpr int kOwn2 = kOwnBytes;
  static constexpr int kOther1 = 2 * kOwnBytes;  // of the first stage
  static constexpr int kOther2 = kOther1 + kOtherBytes;
  static constexpr int kStats = kOther2 + kOtherBytes;
  static constexpr int kStageBytes =
      2 * kOtherBytes + (kOwnsKeys ? kColumns * int{sizeof(RowStats)} : 0);
  static_assert(kOther1 + AmpereBackwardKernelConfig::kStages * kStageBytes ==
                kConfig.smem_bytes(kVariant));
  static_assert(kStageBytes % Tile::kSwizzleSpanBytes == 0, "addresses are combined by XOR");
};

}  // namespace flash::sm80_bwd
