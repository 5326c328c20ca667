#include "sm90.h"

#include "cluster.h"
#include "race_report.h"
#include "sm90_watch.h"

namespace emulator {

Sm90::Sm90(Block* owner, u32 shared_bytes, bool early_loads, bool ordered_sums, bool warps_meet)
    : block(owner),
      knowledge(owner->races),
      mbarriers(shared_bytes),
      bulk(owner, early_loads, ordered_sums ? Access::kAsyncWrite : Access::kAsyncAtomic),
      warpgroups(owner->n_warps * kWarpSize, warps_meet),
      shadow(knowledge, shared_bytes, owner->n_warps),
      global(shadow, owner->n_warps * kWarpSize) {}

void Sm90::start_block() {
  knowledge.start_block();
  mbarriers.start_block();
  bulk.start_block();
  warpgroups.start_block();
  registers.start_block(block->n_threads);
  shadow.start_block(block->races);
  global.start_block(block->races);
  uses.start_block();
  last_stall_ = {};
}

bool Sm90::make_progress() {
  if (bulk.land_one(block)) return block->error.kind == ErrorKind::kNone;
  Activity now{mbarriers.activity(), block->counts.collectives[u32(Wait::kBlockBarrier)],
               block->alive};
  if (now == last_stall_) return false;
  last_stall_ = now;
  return mbarriers.wake_all(block);
}

void Sm90::exit_lane(Lane* lane) {
  bulk.exit_lane(lane);
  warpgroups.exit_lane(lane);
}

void Sm90::finish_block() {
  bulk.finish_block(block);
  if (block->error.kind == ErrorKind::kNone) warpgroups.finish_block(block);
  if (block->error.kind == ErrorKind::kNone) check_named_barriers();
  if (block->error.kind == ErrorKind::kNone) block->cluster->check_copies_of(block);
  uses.check(block);
}

// Threads have come to a barrier that nobody was left to complete.
void Sm90::check_named_barriers() const {
  for (u32 number = 0; number < kMaxBarriers; ++number) {
    const Barrier& barrier = block->barriers[number];
    if (barrier.arrived == 0) continue;
    record_error(block->lanes, ErrorKind::kDivergentCollective, 0,
                 "the thread block ends while barrier %u has had %u of %u arrivals", number,
                 barrier.arrived, barrier.expected);
    return;
  }
}

void watch_sm90(Lane* lane, u32 offset, u32 bytes, bool writes, u32 site) {
  Sm90* sm90 = lane->block->sm90;
  if (const Mbarrier* barrier = sm90->mbarriers.overlapping(offset, bytes)) {
    fail(lane, ErrorKind::kMbarrier, site,
         "accesses byte %u of shared memory, where the mbarrier of {site:%u} lies", offset,
         barrier->init_site);
  }
  sm90->shadow.lane_access(lane, offset, bytes, writes, site);
}

void watch_sm90_global(Lane* lane, u64 address, u32 bytes, u32 site) {
  lane->block->sm90->global.write(lane, address, bytes, site);
}

}  // namespace emulator
