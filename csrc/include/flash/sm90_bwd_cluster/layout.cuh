// What lies where in the shared memory of the kernel of a pair, and its barriers.
#pragma once

#include "flash/sm90_bwd/layout.cuh"
#include "flash/sm90_bwd_cluster/config.h"
#include "flash/sm90_bwd_cluster/ds_writer.cuh"
#include "flash/tile/ordered_tiles.cuh"

namespace flash::sm90_bwd_cluster {

// How a pair's keys are shared out among pairs: all that `flash::Work` asks for.
template <ClusterBackwardKernelConfig kConfig>
struct PairRows {
  static constexpr bool kOwnsKeys = true;
  static constexpr int kRows = ClusterBackwardKernelConfig::kBlocks * kConfig.keys_rows;
  static constexpr int kColumns = kConfig.keys_columns;
  static constexpr unsigned kSectionBlocks = kConfig.section_blocks();
  static constexpr bool kInOrder = kConfig.in_order();
  static constexpr bool kStaggers = !kInOrder;
  static constexpr bool kWideSections = false;
  static constexpr bool kWideForwards = false;
};

// What a pair works on.
struct PairTile {
  static constexpr unsigned kNone = ~0u;  // in place of the block of a tile that does not exist

  OwnTile keys;
  unsigned place;  // in the grid's order

  FLASH_DEVICE bool exists() const { return keys.block != kNone; }
};

// A pair's keys.
template <typename Rows, bool kInOrder = Rows::kInOrder>
struct PairKeys : flash::Work<Rows> {
  PairKeys() = default;
  using flash::Work<Rows>::Work;
};

// In order, and its place there.
template <typename Rows>
struct PairKeys<Rows, true> : flash::Work<Rows>, TileOrder<Rows> {
  PairKeys() = default;
  FLASH_DEVICE PairKeys(const BackwardArgs& args, const OwnTile& tile)
      : flash::Work<Rows>(args, tile), TileOrder<Rows>(args, tile, heads(args)) {
    this->first = this->first_of(this->begin, this->end);
  }

  FLASH_DEVICE static OwnTile tile(const BackwardArgs& args, unsigned pair) {
    return OrderedGrid<Rows>(args, heads(args)).tile(pair);
  }

 private:
  FLASH_DEVICE static unsigned heads(const BackwardArgs& args) {
    return static_cast<unsigned>(args.n_heads_kv);
  }
};

// A thread block's keys. The same blocks of queries pass by both of a pair, although some may be
// hidden from all keys of the second.
template <ClusterBackwardKernelConfig kConfig>
struct PairWork : PairKeys<PairRows<kConfig>> {
  using Base = PairKeys<PairRows<kConfig>>;

  unsigned pair = 0;  // in the grid's order

  PairWork() = default;
  FLASH_DEVICE PairWork(const BackwardArgs& args, const PairTile& tile, uint32_t rank)
      : Base(args, tile.keys), pair(tile.place) {
    Base::first_row += static_cast<int>(rank) * kConfig.keys_rows;
    Base::n_rows -= static_cast<int>(rank) * kConfig.keys_rows;
  }

  // Of all heads.
  FLASH_DEVICE static unsigned n_tiles(const BackwardArgs& args) {
    constexpr unsigned kRows = PairRows<kConfig>::kRows;
    return (static_cast<unsigned>(args.seqlen_k) + kRows - 1) / kRows *
           static_cast<unsigned>(args.n_heads_kv) * static_cast<unsigned>(args.batch);
  }
};

// The first row of the sums of the queries at `place`.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE int64_t sums_row(const BackwardArgs& call, const PairWork<kConfig>& work,
                              const Place& place) {
  const int64_t head = work.batch * call.n_heads_q + work.head * work.n_heads + place.head;
  return head * row_stats_rows(call.seqlen_q, kConfig.stats_block()) +
         place.block * kConfig.keys_columns;
}

// Blocks of dS and the other thread block's K, then all that the two-pass kernel of dK and dV has,
// then the tile and more barriers. `base`: of the two-pass kernel's part.
template <ClusterBackwardKernelConfig kConfig>
struct Layout : sm90_bwd::Layout<kConfig.two_pass(), Variant::kKeys> {
  using TwoPass = sm90_bwd::Layout<kConfig.two_pass(), Variant::kKeys>;
  using Work = PairWork<kConfig>;
  static constexpr int kBlocks = ClusterBackwardKernelConfig::kBlocks;
  static constexpr bool kSharesDs = true;
  static constexpr bool kStays = true;
  static constexpr bool kInOrder = kConfig.in_order();
  static constexpr int kPartners = 3;
  using DsWriter = sm90_bwd_cluster::DsWriter<Layout>;
  // As many as leave no spills.
  static constexpr int kHeldSteps1 = 8;
  static constexpr int kHeldSteps2 = 4;
  // Shared addresses of a cluster's later thread blocks have their number in higher bits, where a
  // descriptor has other fields.
  FLASH_DEVICE static uint32_t matrix_address(uint32_t shared) { return shared & 0x3ffff; }
  static constexpr int kDsStages = kConfig.ds_stages;
  static constexpr int kDsBytes = kConfig.ds_bytes();
  static constexpr int kDsPartBytes = kConfig.ds_part_bytes();
  static constexpr int kDsRowBytes = kConfig.keys_columns * bytes_of(kConfig.dtype);
  static_assert(kDsRowBytes == 128, "a row is one of a swizzle atom");
  static constexpr int kDsWarpBytes =
      kDsPartBytes / sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  // The two-pass kernel's second place of weights is that of sums of dQ which wait for the copy
  // engine: so many pieces (QuerySums) of each warp in each of two buffers.
  static constexpr int kWeightStages = 1;
  static constexpr int kStagingBuffers = 2;
  static constexpr int kStagingBytes = TwoPass::kWeightsBytes / kStagingBuffers;
  static constexpr int kStagedPieces =
      kStagingBytes / (sm90_bwd::HopperBackwardKernelConfig::kGroupWarps * 32 * 16);
  static_assert(TwoPass::kWeightStages == 2);
  static constexpr int kOtherKeys = kDsStages * kDsBytes;
  static constexpr int kTwoPass = kOtherKeys + kConfig.other_keys_bytes();
  static constexpr int kTile = kConfig.tile_offset();
  static constexpr int kTileBytes = ClusterBackwardKernelConfig::kTileBytes;
  static_assert(kDsPartBytes % 1024 == 0 && kTwoPass % 1024 == 0, "whole swizzle atoms");

  FLASH_DEVICE explicit Layout(uint32_t shared) : TwoPass{shared + kTwoPass} {}

  // A block of dS: what this thread block's keys have of it, then what the other's have; each
  // [keys][queries], swizzled.
  FLASH_DEVICE uint32_t ds(int stage) const { return start() + stage * kDsBytes; }
  FLASH_DEVICE uint32_t other_ds(int stage) const { return ds(stage) + kDsPartBytes; }
  // Of the other's K, one behind the other: the chunk of this thread block's own sums, and the one
  // whose sums the two share.
  FLASH_DEVICE uint32_t other_keys() const { return start() + kOtherKeys; }

  FLASH_DEVICE uint32_t staging(int buffer) const {
    return this->weights(1) + buffer * kStagingBytes;
  }

  // "Full": this thread block's warps have written their part, and the other's has come. "Empty":
  // both thread blocks have multiplied by what this one has written, and it has left.
  FLASH_DEVICE uint32_t ds_full(int stage) const { return ds_barrier(stage); }
  FLASH_DEVICE uint32_t ds_empty(int stage) const { return ds_barrier(kDsStages + stage); }
  FLASH_DEVICE uint32_t other_keys_full() const { return ds_barrier(2 * kDsStages); }
  // In order (sums_turns.cuh): it is this thread block's turn to add to a block's sums, and all
  // warps know; its share is added, and the next one has been told.
  FLASH_DEVICE uint32_t turn_come() const { return turn_barrier(0); }
  FLASH_DEVICE uint32_t turn_taken() const { return turn_barrier(1); }
  FLASH_DEVICE uint32_t share_added() const { return turn_barrier(2); }
  FLASH_DEVICE uint32_t turn_passed_on() const { return turn_barrier(3); }

  // The tile (tiles.cuh). "Empty" of K and V: nobody multiplies with them any more, and nothing
  // that was staged in their place waits for the copy engine.
  FLASH_DEVICE uint32_t tile() const { return this->base + kTile; }
  FLASH_DEVICE uint32_t tile_full() const { return stay_barrier(0); }
  FLASH_DEVICE uint32_t tile_empty() const { return stay_barrier(1); }
  FLASH_DEVICE uint32_t own1_empty() const { return stay_barrier(2); }
  FLASH_DEVICE uint32_t own2_empty() const { return stay_barrier(3); }
  // What a warp keeps of it: all but the first, by their number.
  FLASH_DEVICE uint32_t kept(int warp) const { return tile() + (1 + warp) * kTileBytes; }

 private:
  FLASH_DEVICE uint32_t start() const { return this->base - kTwoPass; }
  FLASH_DEVICE uint32_t ds_barrier(int index) const {
    return kept(ClusterBackwardKernelConfig::kKeepingWarps) + 8 * index;
  }
  FLASH_DEVICE uint32_t stay_barrier(int index) const {
    return ds_barrier(2 * kDsStages + 1 + index);
  }
  FLASH_DEVICE uint32_t turn_barrier(int index) const {
    static_assert(kInOrder);
    return stay_barrier(ClusterBackwardKernelConfig::kStayBarriers + index);
  }
};

}  // namespace flash::sm90_bwd_cluster
