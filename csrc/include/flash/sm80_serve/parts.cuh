// Putting together what several thread blocks computed of a tile: by those of them that come last.
//
// Each leaves its sums in scratch memory and counts itself; who finds all others counted merges
// them. Many parts, or large ones, are merged by groups, and the groups by the last of theirs: one
// thread block that reads everything would take longer than all of them took to compute it.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/atomic.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm80_serve/shares.cuh"

namespace flash::sm80_serve {

// The parts of a tile: of consecutive thread blocks.
template <AmpereServeKernelConfig kConfig>
struct Parts {
  static constexpr int kRowsAtOnce = 256;  // that one thread block merges

  const ServeArgs& args;
  const Tile<kConfig>& tile;
  int first_block;
  bool begins_within;  // the first thread block's share begins before the tile
  int n;
  int group;  // parts that are merged at once

  FLASH_DEVICE Parts(const ServeArgs& serve_args, const Piece<kConfig>& piece, int64_t share)
      : args(serve_args), tile(piece.tile) {
    const int64_t last_unit = piece.first_unit + piece.tile_units - 1;
    first_block = static_cast<int>(piece.first_unit / share);
    begins_within = piece.first_unit > first_block * share;
    n = static_cast<int>(last_unit / share) - first_block + 1;
    group = n;
    if (n * tile.n_rows > kRowsAtOnce) {
      group = 1;
      while (group * group < n) ++group;
    }
  }

  // A thread block has room for a tile that began before its share, or with it, and for one more.
  FLASH_DEVICE int slot(int part) const {
    return 2 * (first_block + part) + (part == 0 && begins_within ? 1 : 0);
  }
  FLASH_DEVICE float4& sum(int part, int r, int column) const {
    const int64_t row = int64_t{slot(part)} * kConfig.B_r + r;
    return reinterpret_cast<float4*>(args.o_partial)[(row * kConfig.d_head + column) / 4];
  }
  // `merged`: of a group, by its first part.
  FLASH_DEVICE float& lse(int part, int r, bool merged) const {
    const int place = slot(part) + (merged ? 2 * static_cast<int>(gridDim.x) : 0);
    return args.lse_partial[int64_t{place} * kConfig.B_r + r];
  }

  FLASH_DEVICE void leave(int part, int r, int column, const MergedColumns& columns,
                          bool merged) const {
    sum(part, r, column) = columns.o;
    if (column == 0) lse(part, r, merged) = columns.lse;
  }

  // All threads; what this thread block has left is there. `flag`: in shared memory.
  FLASH_DEVICE void arrive(uint32_t* flag) const {
    const int g = (static_cast<int>(blockIdx.x) - first_block) / group;
    const int first = g * group;
    const int count = min(group, n - first);
    if (!is_last(args.arrivals + slot(first), count, flag)) return;
    if (group == n) {
      merge_all(n, 1, false);
      return;
    }
    merge_rows<kConfig, 8>(
        tile, count, nullptr, [&](int i, int r) { return lse(first + i, r, false); },
        [&](int i, int r, int column) { return sum(first + i, r, column); },
        [&](int r, int column, const MergedColumns& columns) {
          leave(first, r, column, columns, true);
        });
    const int n_groups = (n + group - 1) / group;
    if (is_last(args.arrivals + 2 * gridDim.x + slot(0), n_groups, flag)) {
      merge_all(n_groups, group, true);
    }
  }

 private:
  FLASH_DEVICE static bool is_last(uint32_t* counter, int count, uint32_t* flag) {
    const auto last = static_cast<uint32_t>(count - 1);
    __syncthreads();  // all threads have written
    if (threadIdx.x == 0) *flag = ptx::atomic_inc_acq_rel(counter, last);
    __syncthreads();
    return *flag == last;
  }

  FLASH_DEVICE void merge_all(int count, int step, bool merged) const {
    merge_rows<kConfig, 8>(
        tile, count, args.sinks, [&](int i, int r) { return lse(i * step, r, merged); },
        [&](int i, int r, int column) { return sum(i * step, r, column); },
        [&](int r, int column, const MergedColumns& columns) {
          store_result(args, tile, r, column, columns);
        });
  }
};

}  // namespace flash::sm80_serve
