// The configuration of one backward pass of the Hopper family: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA). The fields, their order and their meaning are those of
// `HopperBackwardKernelConfig` in py/flash_helpers/kernels/sm90_bwd/config.py;
// tests/config/test_cpp_contracts.py compares the two. A structural type: kernels take it as a
// non-type template argument.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/core/variant.h"

namespace flash::sm90_bwd {

// One side of the score matrix stays with a thread block, the other passes by.
struct BlockShape {
  int rows;     // that stay: keys in the kernel of dK and dV, queries in that of dQ; 64 a group
  int columns;  // of a block that passes by: of queries, or of keys
  int stages;   // such blocks in shared memory
};

struct HopperBackwardKernelConfig {
  DType dtype;
  int d_head;           // elements of one head
  int keys_rows;        // BlockShape of the kernel of dK and dV
  int keys_columns;     //
  int keys_stages;      //
  int queries_rows;     // BlockShape of the kernel of dQ
  int queries_columns;  //
  int queries_stages;   //

  constexpr bool operator==(const HopperBackwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kGroupThreads = 128;
  static constexpr int kGroupRows = 64;  // rows of one wgmma
  static constexpr int kGroupWarps = 4;
  static constexpr int kDotsThreads = 128;  // of the kernel that makes RowStats

  constexpr int element_bytes() const { return bytes_of(dtype); }
  constexpr int row_bytes() const { return d_head * element_bytes(); }

  constexpr BlockShape shape(Variant variant) const {
    if (variant == Variant::kQueries) return {queries_rows, queries_columns, queries_stages};
    return {keys_rows, keys_columns, keys_stages};
  }
  // Sums of dK and dV for 64 keys do not fit the registers of one consumer: two have the same keys
  // (pair.cuh), and the weights P go from one to the other, in fp32.
  constexpr bool splits_sums(Variant variant) const {
    return variant == Variant::kKeys && d_head > 128;
  }
  static constexpr int kWeightStages = 2;
  constexpr int weights_bytes(Variant variant) const {
    return splits_sums(variant) ? kGroupRows * keys_columns * int{sizeof(float)} : 0;
  }
  // Consumer warpgroups.
  constexpr int groups(Variant variant) const {
    return shape(variant).rows / kGroupRows * (splits_sums(variant) ? 2 : 1);
  }
  // Blocks of the second tensor that passes by. V is read early in a step and then no more, so that
  // it needs one less.
  constexpr int second_stages(Variant variant) const {
    return shape(variant).stages - (variant == Variant::kQueries ? 1 : 0);
  }

  // A warpgroup that loads, and those that multiply.
  constexpr int n_threads(Variant variant = Variant::kKeys) const {
    return variant == Variant::kDots ? kDotsThreads : (groups(variant) + 1) * kGroupThreads;
  }

  // With queries that pass by, their RowStats do too.
  constexpr int stats_bytes(Variant variant) const {
    return variant == Variant::kKeys ? keys_columns * int{sizeof(RowStats)} : 0;
  }
  // Of the two tensors that stay, "full"; of the two that pass by, in each stage, "full" and
  // "empty"; the same of weights that are handed on.
  constexpr int n_barriers(Variant variant) const {
    return 2 + 2 * (shape(variant).stages + second_stages(variant)) +
           (splits_sums(variant) ? 2 * kWeightStages + 1 : 0);
  }

  constexpr int smem_bytes(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kDots) return 0;
    const BlockShape block = shape(variant);
    return 2 * block.rows * row_bytes() +
           (block.stages + second_stages(variant)) * block.columns * row_bytes() +
           block.stages * stats_bytes(variant) + kWeightStages * weights_bytes(variant) +
           8 * n_barriers(variant);
  }

  // The shared-memory row of a tile, and the mode of its swizzle.
  constexpr int swizzle_bytes() const { return row_bytes() % 128 == 0 ? 128 : 64; }

  // A block has a multiprocessor to itself, but for the kernel without shared memory.
  constexpr int min_blocks_per_sm(Variant variant = Variant::kKeys) const {
    return variant == Variant::kDots ? 8 : 1;
  }

  // Registers per thread after setmaxnreg. All warpgroups together get what the launch allotted:
  // 168 for each of 384 threads, 128 for each of 512.
  constexpr int consumer_registers(Variant variant) const {
    return groups(variant) == 3 ? 160 : 240;
  }
  constexpr int producer_registers(Variant variant) const { return groups(variant) == 3 ? 32 : 24; }
};

}  // namespace flash::sm90_bwd
