// The schedules of tile/load_schedule.h, as tables.
#include "flash/tile/load_schedule.h"

using namespace flash;

// out: slots, slots wanted and tiles loaded before the loop, then slot, first and last of each
// tile.
template <int kTotal, int kLoad, bool kDouble>
__device__ void describe(int* out) {
  using Schedule = LoadSchedule<kTotal, kLoad, kDouble>;
  out[0] = Schedule::kSlots;
  out[1] = Schedule::wanted_slots();
  out[2] = Schedule::kPrologueTiles;
  for (int tile = 0; tile < kTotal; ++tile) {
    out[3 + 3 * tile] = Schedule::slot(tile);
    out[4 + 3 * tile] = Schedule::first(tile);
    out[5 + 3 * tile] = Schedule::last(tile);
  }
}

template <int kTotal, int kLoad>
__device__ void choose(int* out, int total, int load, int doubled) {
  if constexpr (kLoad == 0 || kTotal % kLoad == 0) {
    if (total != kTotal || load != kLoad) return;
    doubled ? describe<kTotal, kLoad, true>(out) : describe<kTotal, kLoad, false>(out);
  }
}

template <int kTotal>
__device__ void choose_load(int* out, int total, int load, int doubled) {
  choose<kTotal, 0>(out, total, load, doubled);
  choose<kTotal, 1>(out, total, load, doubled);
  choose<kTotal, 2>(out, total, load, doubled);
  choose<kTotal, 4>(out, total, load, doubled);
  choose<kTotal, 8>(out, total, load, doubled);
}

extern "C" __global__ void kernel(int* out, int total, int load, int doubled) {
  choose_load<2>(out, total, load, doubled);
  choose_load<4>(out, total, load, doubled);
  choose_load<6>(out, total, load, doubled);
  choose_load<8>(out, total, load, doubled);
}
