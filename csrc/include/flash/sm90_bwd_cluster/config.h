// The configuration of one backward pass of the Hopper family by pairs of thread blocks: every
// choice that is fixed at compile time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `ClusterBackwardKernelConfig` in py/flash_helpers/kernels/sm90_bwd_cluster/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/core/variant.h"
#include "flash/sm90_bwd/config.h"

namespace flash::sm90_bwd_cluster {

// In which order pairs of a head add their shares of dQ to the sums in global memory.
enum class SumsOrder : int {
  kAnyOrder,  // as they come
  kInOrder,   // always the same (flash/tile/ordered_tiles.cuh)
};

struct ClusterBackwardKernelConfig {
  DType dtype;
  int d_head;            // elements of one head
  int keys_rows;         // keys that stay with a thread block
  int keys_columns;      // queries of a block that passes by
  int keys_stages;       // such blocks in shared memory
  int ds_stages;         // blocks of dS in shared memory
  int wave_pairs;        // clusters that run at once, as sections.h counts; 0: it has no sections
  SumsOrder sums_order;  // in order there are no sections

  constexpr bool operator==(const ClusterBackwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kBlocks = 2;  // thread blocks of a cluster
  static constexpr int kRoundThreads = 256;
  static constexpr int kChunk = 64;         // elements of a chunk of a tile
  static constexpr int kTileBytes = 16;     // which tile a pair works on
  static constexpr int kKeepingWarps = 15;  // that keep it: all but the one that loads
  static constexpr int kStayBarriers = 4;   // of tiles, and of K and V

  // The kernel of dK and dV of the two-pass family that keeps the same rows and has the same blocks
  // pass by.
  constexpr sm90_bwd::HopperBackwardKernelConfig two_pass() const {
    return {.dtype = dtype,
            .d_head = d_head,
            .keys_rows = keys_rows,
            .keys_columns = keys_columns,
            .keys_stages = keys_stages,
            .queries_rows = keys_rows,
            .queries_columns = keys_columns,
            .queries_stages = keys_stages};
  }

  // Pairs of a section (flash/tile/gradient_work.cuh).
  constexpr unsigned section_blocks() const {
    return wave_pairs > 0 ? static_cast<unsigned>(wave_pairs) : 128u;
  }

  constexpr bool in_order() const { return sums_order == SumsOrder::kInOrder; }

  constexpr int row_bytes() const { return d_head * bytes_of(dtype); }
  // Elements of dQ that a thread block of a cluster sums: two thirds of them are a chunk.
  constexpr int sums_elements() const { return d_head / kBlocks; }
  // Of a thread block's part of the sums of a block of queries, in fp32.
  constexpr int sums_bytes() const { return keys_columns * sums_elements() * int{sizeof(float)}; }
  // Of the other thread block's K: its chunk, and the one that both share.
  constexpr int other_keys_bytes() const { return 2 * keys_rows * kChunk * bytes_of(dtype); }
  // Of a thread block's part of a block of dS.
  constexpr int ds_part_bytes() const { return keys_rows * keys_columns * bytes_of(dtype); }
  constexpr int ds_bytes() const { return kBlocks * ds_part_bytes(); }
  // What a head's rows of RowStats, and of sums, are filled up to.
  constexpr int stats_block() const { return row_stats_block(keys_columns); }
  // Of each block of dS "full" and "empty", and "full" of the other's K; of tiles; in order, four
  // of turns.
  constexpr int n_more_barriers() const {
    return 2 * ds_stages + 1 + kStayBarriers + (in_order() ? 4 : 0);
  }

  // Where the tile lies behind what the two-pass kernel has in shared memory.
  constexpr int tile_offset() const {
    return (two_pass().smem_bytes(Variant::kKeys) + 15) / 16 * 16;
  }

  // A warpgroup that loads, one for dV, one for dK, and one for dQ.
  constexpr int n_threads(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kRound) return kRoundThreads;
    const int found = two_pass().n_threads(variant);
    return found + (variant == Variant::kKeys ? 128 : 0);
  }

  constexpr int smem_bytes(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kRound) return keys_columns * row_bytes();
    if (variant == Variant::kDots) return 0;
    return ds_stages * ds_bytes() + other_keys_bytes() + tile_offset() +
           (1 + kKeepingWarps) * kTileBytes + 8 * n_more_barriers();
  }

  constexpr int min_blocks_per_sm(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kRound) return 4;
    return two_pass().min_blocks_per_sm(variant);
  }

  // Thread blocks of a cluster of a kernel.
  constexpr int cluster(Variant variant) const { return variant == Variant::kKeys ? kBlocks : 1; }

  // Registers per thread after setmaxnreg: together the 128 for each of 512 that the launch
  // allotted.
  static constexpr int kProducerRegisters = 32;
  static constexpr int kWeightsRegisters = 208;
  static constexpr int kScoresRegisters = 192;
  static constexpr int kSumsRegisters = 80;
};

}  // namespace flash::sm90_bwd_cluster
