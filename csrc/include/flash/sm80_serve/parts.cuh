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

struct WholeBlock {
  FLASH_DEVICE void operator()() const { __syncthreads(); }
};

// The parts of a tile: of thread blocks with consecutive shares.
template <AmpereServeKernelConfig kConfig, typename ItsAbreast = Abreast>
struct Parts {
  static constexpr int kRowsAtOnce = 256;  // that one thread block merges

  const ServeArgs& args;
  const Tile<kConfig>& tile;
  const ItsAbreast abreast;
  int first_share;
  bool begins_within;  // the first share begins before the tile
  int n;
  int group;  // parts that are merged at once

  FLASH_DEVICE Parts(const ServeArgs& serve_args, const Piece<kConfig>& piece, UnitCount share,
                     const ItsAbreast& its_abreast = {})
      : args(serve_args), tile(piece.tile), abreast(its_abreast) {
    const UnitCount last_unit = piece.first_unit + piece.tile_units - 1;
    first_share = static_cast<int>(piece.first_unit / share);
    begins_within = piece.first_unit > first_share * share;
    n = static_cast<int>(last_unit / share) - first_share + 1;
    group = n;
    if (n * tile.n_rows > kRowsAtOnce) {
      group = 1;
      while (group * group < n) ++group;
    }
  }

  // A thread block has room for a tile that began before its share, or with it, and for one more.
  FLASH_DEVICE int slot(int part) const {
    return 2 * abreast.block(first_share + part) + (part == 0 && begins_within ? 1 : 0);
  }
  FLASH_DEVICE float4& sum(int part, int r, int column) const {
    return sum_at(slot(part), r, column);
  }
  // `merged`: of a group, by its first part.
  FLASH_DEVICE float& lse(int part, int r, bool merged) const {
    return lse_at(slot(part), r, merged);
  }

  FLASH_DEVICE void leave(int part, int r, int column, const MergedColumns& columns,
                          bool merged) const {
    sum(part, r, column) = columns.o;
    if (column == 0) lse(part, r, merged) = columns.lse;
  }

  // This thread block's.
  FLASH_DEVICE int own() const { return static_cast<int>(abreast.share()) - first_share; }

  // All threads that merge; what this thread block has left is there. `flag`: in shared memory;
  // `sync`: lets those threads wait for each other, where they are not the whole thread block.
  template <typename Sync = WholeBlock>
  FLASH_DEVICE void arrive(uint32_t* flag, const Sync& sync = {}) const {
    const int first = group == n ? 0 : own() / group * group;
    // Of a group's parts, then, where there are several groups, of all groups.
    Round round = {.first = first,
                   .step = 1,
                   .n = min(group, n - first),
                   .counter = args.arrivals + slot(first)};
#pragma unroll 1
    while (is_last(round, flag, sync)) {
      const bool is_result = round.n == n || round.step > 1;
      merge(round, is_result);
      if (is_result) return;
      round = {.first = 0,
               .step = group,
               .n = (n + group - 1) / group,
               .counter = args.arrivals + 2 * gridDim.x + slot(0)};
    }
  }

 private:
  // Parts that are merged at once: `n` from `first` on, `step` apart.
  struct Round {
    int first;
    int step;  // more than 1: those are of groups
    int n;
    uint32_t* counter;
  };

  template <typename Sync>
  FLASH_DEVICE static bool is_last(const Round& round, uint32_t* flag, const Sync& sync) {
    const auto last = static_cast<uint32_t>(round.n - 1);
    sync();  // all threads have written
    if (threadIdx.x == 0) *flag = ptx::atomic_inc_acq_rel(round.counter, last);
    sync();
    return *flag == last;
  }

  // To the result, or to the group's place.
  FLASH_DEVICE void merge(const Round& round, bool is_result) const {
    const bool of_groups = round.step > 1;
    // Only the first of a tile's parts may have its thread block's other slot.
    const auto at = [&](int i) {
      return i == 0 ? slot(round.first)
                    : 2 * abreast.block(first_share + round.first + i * round.step);
    };
    merge_rows<kConfig, 8>(
        tile, round.n, is_result ? args.sinks : nullptr,
        [&](int i, int r) { return lse_at(at(i), r, of_groups); },
        [&](int i, int r, int column) { return sum_at(at(i), r, column); },
        [&](int r, int column, const MergedColumns& columns) {
          if (is_result) {
            store_result(args, tile, r, column, columns);
          } else {
            leave(round.first, r, column, columns, true);
          }
        });
  }

  // Slots are some megabytes: 32 bits, which take a read one multiplication.
  FLASH_DEVICE float4& sum_at(int place, int r, int column) const {
    const auto row = static_cast<uint32_t>(place * kConfig.B_r + r);
    return *reinterpret_cast<float4*>(args.o_partial + (row * kConfig.d_head + column));
  }
  FLASH_DEVICE float& lse_at(int place, int r, bool merged) const {
    if (merged) place += 2 * static_cast<int>(gridDim.x);
    return args.lse_partial[static_cast<uint32_t>(place * kConfig.B_r + r)];
  }
};

}  // namespace flash::sm80_serve
