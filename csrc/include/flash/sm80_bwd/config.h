// The configuration of one backward pass of the Ampere family: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA), so host code, device code and tests share it. The fields, their order and
// their meaning are those of `AmpereBackwardKernelConfig` in
// py/flash_helpers/kernels/sm80_bwd/config.py; tests/config/test_cpp_contracts.py compares the two.
// It is a structural type: kernels take it as a non-type template argument.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/core/variant.h"

namespace flash::sm80_bwd {

// One side of the score matrix stays with a thread block, the other passes by.
struct BlockShape {
  int rows;     // that stay: keys in the kernel of dK and dV, queries in that of dQ
  int columns;  // of a block that passes by: of queries, or of keys
  int warps;    // each has rows / warps of the rows
};

struct AmpereBackwardKernelConfig {
  DType dtype;
  int d_head;           // elements of one head
  int keys_rows;        // BlockShape of the kernel of dK and dV
  int keys_columns;     //
  int keys_warps;       //
  int queries_rows;     // BlockShape of the kernel of dQ
  int queries_columns;  //
  int queries_warps;    //

  constexpr bool operator==(const AmpereBackwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kWarpSize = 32;
  static constexpr int kStages = 2;         // blocks that pass by: one is computed, one comes
  static constexpr int kDotsThreads = 128;  // of the kernel that makes RowStats

  constexpr int element_bytes() const { return bytes_of(dtype); }
  constexpr int row_bytes() const { return d_head * element_bytes(); }

  // Whether sums of 16 rows of both dK and dV are too much for a warp's registers.
  constexpr bool sums_in_turn() const { return d_head > 128; }

  constexpr BlockShape shape(Variant variant) const {
    if (variant == Variant::kQueries) return {queries_rows, queries_columns, queries_warps};
    return {keys_rows, keys_columns, keys_warps};
  }

  constexpr int n_threads(Variant variant = Variant::kKeys) const {
    return variant == Variant::kDots ? kDotsThreads : shape(variant).warps * kWarpSize;
  }

  // Two tensors' blocks that stay, two of those that pass by in each stage, and with queries that
  // pass by their RowStats.
  constexpr int smem_bytes(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kDots) return 0;
    const BlockShape block = shape(variant);
    const int stats = variant == Variant::kKeys ? block.columns * int{sizeof(RowStats)} : 0;
    return 2 * block.rows * row_bytes() + kStages * (2 * block.columns * row_bytes() + stats);
  }

  // Thread blocks per multiprocessor that the register budget is planned for (65,536 registers,
  // at most 255 a thread): two blocks of four warps, one of eight.
  constexpr int min_blocks_per_sm(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kDots) return 8;
    return shape(variant).warps <= 4 ? 2 : 1;
  }
};

}  // namespace flash::sm80_bwd
