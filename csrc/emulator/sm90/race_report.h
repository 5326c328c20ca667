// Reports of races with asynchronous operations, into the race detector's table.
#pragma once

#include "block.h"
#include "lane.h"
#include "race.h"

namespace emulator {

struct FirstParty {
  u32 thread;
  u32 site;
  const Block* block = nullptr;  // null: the one whose memory it is
};

enum class Memory : bool { kShared, kGlobal };

// `lane` at `site` is the second party; `first` has site 0 where there is none. In shared memory
// the address is an offset.
[[gnu::cold]] void report_race(Races& races, const Lane* lane, u32 site, RaceKind kind,
                               FirstParty first, u64 address, u64 bytes,
                               Memory memory = Memory::kShared);

}  // namespace emulator
