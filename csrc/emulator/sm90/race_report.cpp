#include "race_report.h"

#include "block.h"

namespace emulator {

void report_race(Races& races, const Lane* lane, u32 site, RaceKind kind, FirstParty first,
                 u64 address, u64 bytes, Memory memory) {
  RaceReport race{};
  race.kind = kind;
  race.is_global = memory == Memory::kGlobal;
  race.address = address;
  race.bytes = bytes;
  race.count = 1;
  race.latest_access = races.access;
  if (first.site != 0) {
    const Block* block = first.block != nullptr ? first.block : races.owner;
    race.first = {block->races->block - u64{1}, first.thread, first.site,
                  block->lanes[first.thread].barrier_site, 0};
  }
  // Which may be of another block of the cluster.
  const u64 other = lane->block->races->block - u64{1};
  race.second = {other, thread_of(lane), site, lane->barrier_site, 0};
  races.table.add(race);
}

}  // namespace emulator
