// The configuration of one fused backward pass of the Ampere family: every choice that is fixed at
// compile time.
//
// Plain C++20 (no CUDA), so host code, device code and tests share it. The fields, their order and
// their meaning are those of `AmpereFusedBackwardKernelConfig` in
// py/flash_helpers/kernels/sm80_bwd_fused/config.py; tests/config/test_cpp_contracts.py compares
// the two. It is a structural type: kernels take it as a non-type template argument.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/core/variant.h"

namespace flash::sm80_bwd_fused {

struct AmpereFusedBackwardKernelConfig {
  DType dtype;
  int d_head;        // elements of one head
  int keys_rows;     // keys that stay with a thread block
  int keys_columns;  // queries of a block that passes by
  int keys_warps;    // in pairs, each of which has keys_rows / (keys_warps / 2) of the keys

  constexpr bool operator==(const AmpereFusedBackwardKernelConfig&) const = default;

  // --- derived sizes -------------------------------------------------------------------------

  static constexpr int kWarpSize = 32;
  static constexpr int kStages = 2;         // blocks that pass by: one is computed, one comes
  static constexpr int kDsBlocks = 2;       // one is written while dQ is made of the other
  static constexpr int kDotsThreads = 128;  // of the kernel that makes RowStats
  static constexpr int kBarriers = 2;       // of all threads, 8 bytes each

  constexpr int row_bytes() const { return d_head * bytes_of(dtype); }

  constexpr int n_threads(Variant variant = Variant::kKeys) const {
    return variant == Variant::kDots ? kDotsThreads : keys_warps * kWarpSize;
  }

  // Of P, or of dS.
  constexpr int weights_bytes() const { return keys_rows * keys_columns * bytes_of(dtype); }

  // Of the large kernel: K and V, in each stage Q, dO and their RowStats, P, two blocks of dS, and
  // barriers.
  constexpr int smem_bytes(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kDots) return 0;
    if (variant == Variant::kRound) return keys_columns * row_bytes();
    const int stage = 2 * keys_columns * row_bytes() + keys_columns * int{sizeof(RowStats)};
    return 2 * keys_rows * row_bytes() + kStages * stage + (1 + kDsBlocks) * weights_bytes() +
           8 * kBarriers;
  }

  // Thread blocks per multiprocessor that the register budget is planned for.
  constexpr int min_blocks_per_sm(Variant variant = Variant::kKeys) const {
    if (variant == Variant::kDots) return 8;
    return variant == Variant::kRound ? 4 : 1;
  }
};

}  // namespace flash::sm80_bwd_fused
