// What threads know of those of other blocks of their cluster, for the race detector.
//
// Every block keeps its own ticks first, so what one of them knows is put into another order for
// the next.
#include <algorithm>

#include "block.h"
#include "block_order.h"
#include "race.h"

namespace emulator {

bool Races::is_ordered_in_cluster(const Seen* seen, const Record& record) const {
  if (cluster == 1 || !is_neighbour(record.block)) return false;
  const u32* ticks = seen->ticks() + ticks_of(record.block) + record.warp * kWarpSize;
  for (u32 lanes = record.lanes; lanes != 0; lanes &= lanes - 1) {
    if (record.clock > ticks[__builtin_ctz(lanes)]) return false;
  }
  return true;
}

void Races::join_neighbour_ticks(Seen* into, const Lane& lane, u32 from) const {
  const Races& other = *lane.block->races;
  const u32 first = block - 1 - (block - 1) % cluster;  // of the cluster
  for (u32 rank = 0; rank < cluster; ++rank) {
    u32* ticks = into->ticks() + ticks_of(first + rank + 1);
    const u32* known = lane.seen->ticks() + other.ticks_of(first + rank + 1);
    for (u32 i = from; i < n_own_ticks(); ++i) ticks[i] = std::max(ticks[i], known[i]);
  }
}

void Races::join_neighbour_agents(Seen* into, const Lane& lane) const {
  join_neighbour_ticks(into, lane, n_threads_padded());
}

void Races::join_neighbour(Seen* into, const Lane& lane) const {
  const Races& other = *lane.block->races;
  join_neighbour_ticks(into, lane, 0);
  if (global->order) into->others = global->order->merged(into->others, lane.seen->others);
  u32& tick = into->ticks()[ticks_of(other.block) + thread_of(&lane)];
  tick = std::max(tick, lane.clock);
}

Seen* Races::view_of(const Lane& lane) {
  Seen* seen = make();
  join_neighbour(seen, lane);
  complete(seen);
  return seen;
}

}  // namespace emulator
