// What the runtime and the race detector call where a kernel uses Hopper's units.
#pragma once

#include "lane.h"

namespace emulator {

// An access to shared memory by a lane, when races are looked for.
void watch_sm90(Lane* lane, u32 offset, u32 bytes, bool writes, u32 site);
// A write to global memory.
void watch_sm90_global(Lane* lane, u64 address, u32 bytes, u32 site);

}  // namespace emulator
