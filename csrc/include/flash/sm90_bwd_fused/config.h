// The configuration of one fused backward pass of the Hopper family: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `FusedBackwardKernelConfig` in py/flash_helpers/kernels/sm90_bwd_fused/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/core/variant.h"
#include "flash/sm90_bwd/config.h"

namespace flash::sm90_bwd_fused {

// How a block's share of dQ is added to the sums in global memory.
enum class AddBy : int {
  kCopies,     // by the copy engine, from shared memory
  kRegisters,  // by vector reductions
  kInOrder,    // by the copy engine, thread blocks of a head always in the same order
};

struct FusedBackwardKernelConfig {
  DType dtype;
  int d_head;        // elements of one head
  int keys_rows;     // keys that stay with a thread block, 64 a group
  int keys_columns;  // queries of a block that passes by
  int keys_stages;   // such blocks in shared memory
  int ds_stages;     // blocks of dS in shared memory
  AddBy add_by;

  constexpr bool operator==(const FusedBackwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kGroups = 2;   // consumer warpgroups
  static constexpr int kWarps = 8;    // that multiply, and that round
  static constexpr int kSenders = 2;  // warps that send what is staged of dQ

  constexpr int row_bytes() const { return d_head * bytes_of(dtype); }

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

  // P and dS one after the other, each under matmuls of the same group; else both at once, under
  // those of the other group, in turns. What is faster (docs/kernels/05-sm90-backward.md).
  constexpr bool splits() const { return d_head > 64; }

  // Where sums of dQ wait for the copy engine: of a block of queries each. Two, where they fit.
  constexpr int staging_buffers() const { return keys_columns * d_head <= 64 * 128 ? 2 : 1; }
  // Split groups whose blocks are that large lack registers, too: they round P, and multiply by it,
  // only when dS is known.
  constexpr bool delays_sums() const { return staging_buffers() == 1; }

  constexpr bool copies() const { return add_by != AddBy::kRegisters; }

  constexpr int ds_bytes() const { return keys_columns * keys_rows * bytes_of(dtype); }
  // What a head's rows of RowStats, and of sums, are filled up to.
  constexpr int stats_block() const { return row_stats_block(keys_columns); }
  // Of a block of queries, in fp32.
  constexpr int sums_bytes() const { return keys_columns * d_head * int{sizeof(float)}; }
  // Elements of the head in whole matmuls of dQ, which have 64 each.
  constexpr int sums_elements() const { return (d_head + 63) / 64 * 64; }
  // Queries of a group's part of them: with 64 elements the groups share out the queries, with more
  // the elements.
  constexpr int group_queries() const { return keys_columns / kGroups * (sums_elements() / 64); }
  constexpr int staging_bytes() const { return copies() ? staging_buffers() * sums_bytes() : 0; }
  // Of each block of dS "full" and "empty"; of each group's part of a staging buffer, that it is
  // filled.
  constexpr int n_handover_barriers() const { return 2 * ds_stages + kGroups * staging_buffers(); }
  // Of thread blocks that stay: which tile it is, "full" and "empty" of that, "empty" of K and V,
  // "full" of each staging buffer; and the tile again, for each warp.
  static constexpr int kTileBytes = 16;
  constexpr int stay_bytes() const {
    return kTileBytes * (1 + kWarps + kSenders) + 8 * (4 + staging_buffers());
  }

  constexpr int n_threads(Variant variant = Variant::kKeys) const {
    return variant == Variant::kRound ? kWarps * 32 : two_pass().n_threads(variant);
  }

  constexpr int smem_bytes(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kRound) return keys_columns * sums_elements() * bytes_of(dtype);
    if (variant == Variant::kDots) return 0;
    return ds_stages * ds_bytes() + staging_bytes() + two_pass().smem_bytes(variant) +
           8 * n_handover_barriers() + stay_bytes();
  }

  constexpr int min_blocks_per_sm(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kRound) return 4;
    return two_pass().min_blocks_per_sm(variant);
  }
};

}  // namespace flash::sm90_bwd_fused
