// Launch arguments of the Hopper family's backward kernels: what callers pass, and tensor maps.
//
// The launcher makes them (runtime/sm90_bwd/launch.cpp); for the emulator Python does
// (py/flash_helpers/kernels/sm90_bwd/arguments.py).
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm90/args.h"

namespace flash::sm90_bwd {

using sm90::TensorMap;

// Which tensors the maps are of depends on the kernel: Layout (layout.cuh). Those that it does not
// need are all zero.
struct BackwardKernelArgs {
  TensorMap own1;  // rows that stay; box: 64 rows
  TensorMap own2;
  TensorMap other1;  // rows that pass by; box: a block of them
  TensorMap other2;
  TensorMap d_own1;  // box: 16 rows
  TensorMap d_own2;
  TensorMap stats;  // RowStats, seen as rows of stats_row_bytes(); box: those of a block
  // For kernels that round sums of dQ: of dQ; box: kNarrowRowBytes of rows. For pairs of thread
  // blocks: of K; box: a chunk of 64 rows.
  TensorMap narrow;
  BackwardArgs call;
};

// Of a row of a box of the map of dQ.
constexpr int kNarrowRowBytes = 32;

// Of the maps of packed rows: behind which row copies end (packed_map() in
// runtime/sm90_bwd/launch.cpp). A power of two.
constexpr int kRaggedRows = 1 << 30;

// Of a row of the map of RowStats, of which a copy moves those of `columns` queries: the longest
// row that a box of 16-bit elements may have, or half of them.
constexpr int stats_row_bytes(int columns) {
  return columns % 64 == 0 ? 512 : columns * int{sizeof(RowStats)} / 2;
}

static_assert(sizeof(BackwardKernelArgs) == 1408, "Python packs these bytes");

}  // namespace flash::sm90_bwd
