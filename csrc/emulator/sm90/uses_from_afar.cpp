#include "uses_from_afar.h"

#include <algorithm>

#include "race_report.h"

namespace emulator {

void UsesFromAfar::note(u32 index, const Use& use) {
  Use& last = uses_.try_emplace(index, use).first->second;
  if (use.tick >= last.tick) last = use;
}

void UsesFromAfar::note_arrival(const Block* own, const Lane* lane, u32 offset, u32 site) {
  if (own->races == nullptr) return;
  note(own->races->ticks_of(lane->block->races->block) + thread_of(lane),
       {lane->clock, lane, site, offset, 8});
}

void UsesFromAfar::check(const Block* block) const {
  const Lane *first = block->lanes, *end = first + block->n_threads;
  for (const auto& [index, use] : uses_) {
    if (std::any_of(first, end,
                    [&](const Lane& lane) { return lane.seen->ticks()[index] >= use.tick; })) {
      continue;
    }
    block->races->access += 1;
    report_race(*block->races, use.by, use.site, RaceKind::kMayHaveEnded, {0, 0}, use.offset,
                use.bytes);
  }
}

}  // namespace emulator
