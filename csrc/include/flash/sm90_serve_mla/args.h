// Launch arguments of the Hopper family's serving kernels for MLA: what callers pass, and tensor
// maps of the cache.
//
// The launcher makes them from ServeArgs (runtime/sm90_serve_mla/launch.cpp); for the emulator
// Python does (py/flash_helpers/kernels/sm90_serve_mla/arguments.py).
#pragma once

#include <cstdint>

#include "flash/core/serve_args.h"
#include "flash/sm90/args.h"

namespace flash::sm90_serve_mla {

// Maps as in sm90/args.h, with boxes of part_rows rows; pages are batches. A box has one chunk, but
// where a part is a whole block, one of `v` has the values of half a stage.
struct ServeKernelArgs {
  sm90::TensorMap k;
  sm90::TensorMap v;
  ServeArgs call;
  // A block of keys is copied in parts, each of which lies in one page.
  int32_t page_keys;  // a multiple of part_rows, or more than a sequence can have
  int32_t part_rows;  // a multiple of 8 that divides a block
  // Thread blocks that have the same keys, and each another of a sequence's tiles (shares.cuh); 1:
  // a thread block has all tiles of its keys.
  int32_t abreast;
};

static_assert(sizeof(ServeKernelArgs) == 768, "Python packs these bytes");

}  // namespace flash::sm90_serve_mla
