// The cp.async copies of one thread that are in flight, in commit groups.
//
// A copy lands only in the wait that guarantees it, as late as the hardware is allowed to be; until
// then its destination holds 0xFF bytes, which is NaN in every floating-point format.
#pragma once

#include <vector>

#include "lane.h"
#include "types.h"

namespace emulator {

struct AsyncCopy {
  u8* destination;
  const u8* source;
  u32 bytes;
  u32 source_bytes;  // the rest of the destination becomes zero
  u32 group;         // commits before it was issued
  u32 site;
  const GlobalRange* watched_source;  // its range, if the kernel may write there
};

struct AsyncCopies {
  std::vector<AsyncCopy> queue;  // in order of issue
  u32 landed = 0;                // the first copies of the queue that have landed
  u32 commits = 0;

  u32 in_flight() const { return u32(queue.size()) - landed; }
};

}  // namespace emulator
