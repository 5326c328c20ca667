// Where a problem that is not made of whole blocks ends, and the masks of its last blocks.
#pragma once

#include "flash/core/args.h"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm80/config.h"
#include "flash/tile/rows.cuh"
#include "flash/tile/visible.cuh"

namespace flash::sm80 {

// What a kernel's code assumes of its problem. Each configuration has a kernel of either kind; the
// launcher takes kWholeBlocks where it can.
enum class Coverage {
  kWholeBlocks,  // sequences are whole blocks, and every query sees every key: nothing is checked
  kAnyLength,    // any lengths, also none, and causal
};

// The part of the problem that one thread block has to do. Lengths are at most kMaxSeqlen, so that
// an index beyond the end does not overflow.
template <FlashForwardKernelConfig kConfig, Coverage kCoverage>
struct Bounds {
  int q_row;     // first query row of the thread block
  int q_rows;    // how many of its rows exist: 1 to B_r
  int n_blocks;  // KV blocks of which some row sees something
  int n_whole;   // the first of them, which every row sees whole

  FLASH_DEVICE Bounds(const ForwardArgs& args, int first_row) : q_row(first_row) {
    if constexpr (kCoverage == Coverage::kWholeBlocks) {
      q_rows = kConfig.B_r;
      n_blocks = n_whole = args.seqlen_k / kConfig.B_c;
      return;
    }
    q_rows = min(kConfig.B_r, args.seqlen_q - q_row);
    unsigned keys_of_all = args.seqlen_k;  // that every row sees, at least
    unsigned keys_of_any = args.seqlen_k;  // that the last row sees, which sees the most
    if (args.causal) {
      keys_of_all = max(0, keys_by_mask(args, q_row - 1));  // the first row sees one more
      keys_of_any = max(0, keys_by_mask(args, q_row + q_rows - 1));
    }
    n_whole = keys_of_all / kConfig.B_c;
    n_blocks = (keys_of_any + kConfig.B_c - 1) / kConfig.B_c;
  }

  // First row of the last KV block, and how many rows of the sequence there are from there on.
  FLASH_DEVICE int last_kv_row(const ForwardArgs& args) const {
    if (kCoverage == Coverage::kWholeBlocks) return args.seqlen_k - kConfig.B_c;
    return (n_blocks - 1) * kConfig.B_c;
  }
  FLASH_DEVICE int last_kv_rows(const ForwardArgs& args) const {
    return args.seqlen_k - last_kv_row(args);
  }
};

// Where this thread's fragments begin: a row of the thread block, and a column of the KV block.
// Computed anew at each use: in registers across the loop it would be what spills.
template <FlashForwardKernelConfig kConfig>
struct FragmentPlace {
  int row;
  int column;

  FLASH_DEVICE FragmentPlace() {
    uint32_t thread = threadIdx.x;
    ptx::forget(thread);
    constexpr uint32_t kWarpSize = FlashForwardKernelConfig::kWarpSize;
    row = static_cast<int>(thread / kWarpSize * kConfig.rows_per_warp() + thread % kWarpSize / 4);
    column = static_cast<int>(thread % 4) * 2;
  }
};

// Gives the scores of keys that a row does not see the value -inf. `q_row`: first row of the thread
// block; `kv_row`: first row of the KV block. kMayBeLast: this may be the last block of those
// walked, in which the sequence can end.
template <FlashForwardKernelConfig kConfig, bool kMayBeLast, int kMTiles, int kSTiles>
FLASH_DEVICE void mask_scores(float (&s)[kMTiles][kSTiles][4], const ForwardArgs& args, int q_row,
                              int kv_row) {
  const FragmentPlace<kConfig> place;
  const VisibleKeys visible(args, q_row + place.row, kv_row + place.column);
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8;
      const int keys = kMayBeLast ? visible.of_row(row) : visible.of_row_when_causal(row);
#pragma unroll
      for (int n = 0; n < kSTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[m][n][2 * half + i];
          score = n * 8 + i < keys ? score : kNegativeInfinity;
        }
      }
    }
  }
}

// Makes the output of rows that see no key exactly 0, whatever lies in V.
template <FlashForwardKernelConfig kConfig, int kMTiles, int kOTiles>
FLASH_DEVICE void clear_blind_rows(float (&o)[kMTiles][kOTiles][4], float (&inverse)[kMTiles][2],
                                   const ForwardArgs& args, int q_row) {
  const VisibleKeys visible(args, q_row + FragmentPlace<kConfig>().row, 0);
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (visible.of_row(m * 16 + half * 8) > 0) continue;
      inverse[m][half] = 0.0f;
#pragma unroll
      for (int n = 0; n < kOTiles; ++n) o[m][n][2 * half] = o[m][n][2 * half + 1] = 0.0f;
    }
  }
}

}  // namespace flash::sm80
