// Launch arguments of the Hopper family's serving kernels: what callers pass, and tensor maps.
//
// The launcher makes them from ServeArgs (runtime/sm90_serve/launch.cpp); for the emulator Python
// does (py/flash_helpers/kernels/sm90_serve/arguments.py).
#pragma once

#include <cstdint>

#include "flash/core/serve_args.h"
#include "flash/sm90/args.h"

namespace flash::sm90_serve {

// How scores within a soft cap are capped (mask.cuh): an odd polynomial of a score s as the matmul
// gives it, s * (factors[0] + factors[1] s^2 + ...). Its result is an exponent of 2.
struct SoftCap {
  static constexpr int kFactors = 6;
  float limit;  // of s^2: up to it the polynomial is good; negative: of none
  float factors[kFactors];
};

// Maps as in sm90/args.h. Packed rows are those of one batch; pages are batches, any number of
// them.
struct ServeKernelArgs {
  sm90::TensorMap q;  // box: 64 rows; with pack_gqa group_heads of group_queries, of one chunk
  sm90::TensorMap k;  // box: block_n rows, or a part of a page
  sm90::TensorMap v;  // as k
  sm90::TensorMap o;  // box: 16 rows; with pack_gqa of one chunk, where heads fill them
  ServeArgs call;
  int32_t* tile_counter;      // as in sm90::ForwardKernelArgs
  int32_t tiles_per_head;     // of all sequences; some may not exist
  int32_t heads_per_section;  // heads of tiles whose keys share L2, walked together

  // Of paged kernels, whose boxes of k and v are one chunk of part_rows rows: a block of keys is
  // copied in parts, each of which lies in one page.
  const int32_t* pages;  // of each sequence
  int64_t pages_stride;  // from a sequence's first page to the next sequence's
  int32_t page_keys;     // a multiple of part_rows, or more than a sequence can have
  int32_t part_rows;     // a multiple of 8 that divides block_n

  // How 64 rows stand for queries and heads (packing.cuh).
  int32_t group_heads;    // that share a KV head, and a tile; 1: each has its own
  int32_t group_queries;  // 64 / group_heads
  int32_t group_inverse;  // 2^16 / group_heads + 1: a product with it, and a shift, divides

  SoftCap cap;

  // Of paged kernels again, and at the end, so that all others find everything where it was.
  uint32_t page_inverse;  // divides by page_keys (tile/divisor.cuh)
  int32_t block_parts;    // of a block of keys
};

static_assert(sizeof(ServeKernelArgs) == 1088, "Python packs these bytes");

}  // namespace flash::sm90_serve
