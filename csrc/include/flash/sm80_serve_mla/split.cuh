// What a thread block computes where the number of splits is given: one of a tile's splits, the
// same whatever else is in the call.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve_mla/config.h"

namespace flash::sm80_serve_mla {

// Whether it is; else the thread blocks share the keys of the whole call.
FLASH_DEVICE bool is_split(const ServeArgs& args) { return args.arrivals == nullptr; }

template <AmpereMlaKernelConfig kConfig>
struct Split {
  sm80_serve::Tile<kConfig.serving()> tile;
  sm80_serve::UnitCount begin, end;  // units of the sequence

  FLASH_DEVICE Split(const ServeArgs& args, int lane)
      : tile(sm80_serve::tile_of<kConfig.serving()>(args, blockIdx.x, lane)) {
    const sm80_serve::Units<kConfig.serving()> units(tile);
    const int each = (units.each + args.n_splits - 1) / args.n_splits;
    const int first = min(number(args) * each, units.each);
    begin =
        static_cast<sm80_serve::UnitCount>(tile.kv_head * units.tiles + tile.row / kConfig.B_r) *
        units.each;
    end = begin + min(first + each, units.each);
    begin += first;
  }

  FLASH_DEVICE static int number(const ServeArgs& args) {
    return sm80_serve::split_of<kConfig.serving()>(args, blockIdx.x);
  }

  // Says of all rows that no key of the split is seen.
  FLASH_DEVICE void leave_nothing(const ServeArgs& args) const {
    for (int r = static_cast<int>(threadIdx.x); r < tile.n_rows; r += kConfig.n_threads()) {
      args.lse_partial[sm80_serve::partial_row(args, tile, number(args), r)] = kNegativeInfinity;
    }
  }
};

}  // namespace flash::sm80_serve_mla
