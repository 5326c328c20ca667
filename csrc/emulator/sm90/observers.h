// Lanes on whose behalf an asynchronous operation happens.
#pragma once

#include "race.h"

namespace emulator {

// One, or a warp. Of lanes that know the same only the first is asked.
struct Observers {
  bool afar = false;  // a lane of another block, with what it knows as this one counts
  Lane* lanes[kWarpSize];
  u32 count = 0;
  const Seen* seen[kWarpSize];
  u32 distinct = 0;

  Observers() = default;
  explicit Observers(Lane* lane, bool afar = false) : afar(afar) { add(lane); }
  void add(Lane* lane);
};

}  // namespace emulator
