// What threads know of each other, for the race detector.
#include <stdlib.h>

#include <algorithm>

#include "block.h"
#include "block_order.h"
#include "race.h"

namespace emulator {

Races::Races(Block* owner, GlobalShadow* global, u32 shared_bytes, u32 n_agents, u32 cluster)
    : owner(owner),
      global(global),
      n_threads(owner->n_threads),
      n_warps(owner->n_warps),
      n_agents(n_agents),
      cluster(cluster) {
  shared = map_cells((shared_bytes >> global->granule_log2) + 1, 1 + n_warps);
}

Races::~Races() {
  for (Seen* seen : all) free(seen);
  unmap_cells(shared);
}

void Races::start_block(u64 index) {
  block = u32(index) + 1;
  unused = all;
  Seen* seen = make();
  complete(seen);
  for (u32 thread = 0; thread < n_threads; ++thread) give(seen, owner->lanes[thread]);
  if (global->order) flags.assign(n_threads_padded(), Flags{});
}

Seen* Races::make() {
  if (unused.empty()) {
    auto* seen = static_cast<Seen*>(malloc(sizeof(Seen) + n_ticks() * sizeof(u32)));
    if (seen == nullptr) abort();
    all.push_back(seen);
    unused.push_back(seen);
  }
  Seen* seen = unused.back();
  unused.pop_back();
  seen->others = nullptr;
  seen->references = 1;
  seen->floor = 0;
  u32* ticks = seen->ticks();
  std::fill(ticks, ticks + n_threads, 0);
  std::fill(ticks + n_threads, ticks + n_threads_padded(), ~0u);
  std::fill(ticks + n_threads_padded(), ticks + n_ticks(), 0);
  joined_into = nullptr;
  return seen;
}

Seen* Races::copy_of(const Seen* source) {
  Seen* copy = make();
  if (source == nullptr) return copy;
  copy->others = source->others;
  copy->floor = source->floor;
  std::copy_n(source->ticks(), n_ticks(), copy->ticks());
  return copy;
}

void Races::drop(Seen* seen) {
  if (--seen->references == 0) unused.push_back(seen);
}

// Threads that met before share what they know, so most calls only add the thread's own clock.
void Races::join(Seen* into, const Lane& lane) {
  u32* ticks = into->ticks();
  if (into != joined_into || lane.seen != joined_from) {
    const u32* known = lane.seen->ticks();
    for (u32 thread = 0; thread < n_ticks(); ++thread) {
      ticks[thread] = std::max(ticks[thread], known[thread]);
    }
    if (global->order) into->others = global->order->merged(into->others, lane.seen->others);
    joined_into = into;
    joined_from = lane.seen;
  }
  ticks[thread_of(&lane)] = lane.clock;
}

void Races::complete(Seen* seen) {
  const u32* ticks = seen->ticks();
  seen->floor = *std::min_element(ticks, ticks + n_warps * kWarpSize);
}

void Races::give(Seen* seen, Lane& lane) {
  if (lane.seen != nullptr) drop(lane.seen);
  lane.seen = seen;
  seen->references += 1;
  lane.clock += 1;
  lane.barrier_site = lane.wait_site;
}

// What every thread did before, and `seen` besides, happens before what all of them do next. `each`
// calls its argument with every thread.
template <typename Each>
void Races::exchange(Seen* seen, Each each) {
  each([&](Lane& lane) { join(seen, lane); });
  complete(seen);
  each([&](Lane& lane) { give(seen, lane); });
  drop(seen);
}

void Races::meet(Lane* lanes, u32 mask) {
  exchange(make(), [&](auto visit) { for_each_lane(mask, [&](u32 lane) { visit(lanes[lane]); }); });
}

void Races::meet(const Barrier& barrier) {
  exchange(barrier.released ? barrier.released : make(),
           [&](auto visit) { for_each_waiting(owner, barrier, visit); });
}

}  // namespace emulator
