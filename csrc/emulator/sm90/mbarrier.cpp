#include "mbarrier.h"

#include <stdio.h>

#include <algorithm>

#include "collective.h"
#include "memory.h"
#include "race_report.h"
#include "sm90.h"

namespace emulator {

namespace {

using ull = unsigned long long;

// By the cluster's barrier.
bool is_shown(const Mbarrier& barrier, const Lane* lane) {
  return barrier.shown_from != 0 && barrier.shown_from <= lane->cluster_waits;
}

}  // namespace

void Mbarriers::start_block() {
  for (const Mbarrier& barrier : barriers_) slots_[barrier.offset / 8] = 0;
  barriers_.clear();
  barriers_.reserve(kMaxAgents);  // references stay valid
}

const Mbarrier* Mbarriers::overlapping(u32 offset, u32 bytes) const {
  if (barriers_.empty()) return nullptr;
  for (u32 slot = offset / 8; slot <= (offset + bytes - 1) / 8; ++slot) {
    if (slots_[slot] != 0 && barriers_[slots_[slot] - 1].alive) return &barriers_[slots_[slot] - 1];
  }
  return nullptr;
}

void Mbarriers::check_place(Lane* lane, u32 address, u32 site) const {
  u32 offset = address - kSharedBase;
  if (address % 8 != 0 || u64{offset} + 8 > lane->shared_bytes) {
    fail_window(lane, "shared", s64{address} - kSharedBase, lane->shared_bytes, 8, Access::kAtomic,
                site);
  }
}

Mbarrier& Mbarriers::at(Lane* lane, u32 address, u32 site) {
  check_place(lane, address, site);
  u32 offset = address - kSharedBase;
  u32 slot = slots_[offset / 8];
  if (slot == 0 || !barriers_[slot - 1].alive) {
    fail(lane, ErrorKind::kMbarrier, site,
         "no mbarrier is initialised at byte %u of shared memory (%zu have been elsewhere)", offset,
         barriers_.size());
  }
  return barriers_[slot - 1];
}

Mbarrier& Mbarriers::use(Lane* lane, u32 address, u32 site) {
  Mbarrier& barrier = at(lane, address, site);
  if (Races* races = lane->block->races) {
    const bool own = thread_of(lane) == barrier.init_thread;
    if (!own && !is_shown(barrier, lane) &&
        lane->seen->ticks()[barrier.init_thread] < barrier.init_clock) {
      report_race(*races, lane, site, RaceKind::kBarrierUnseen,
                  {barrier.init_thread, barrier.init_site}, barrier.offset, 8);
    }
  }
  return barrier;
}

Mbarrier& Mbarriers::use_in(Block* own, Lane* lane, u32 address, u32 site) {
  if (lane->block == own) return use(lane, address, site);
  Mbarrier& barrier = at(lane, address, site);
  if (own->races != nullptr && !is_shown(barrier, lane)) {
    report_race(*own->races, lane, site, RaceKind::kBarrierUnseen,
                {barrier.init_thread, barrier.init_site}, barrier.offset, 8);
  }
  return barrier;
}

void Mbarriers::init(Lane* lane, u32 address, u32 count, u32 site) {
  check_place(lane, address, site);
  u32 offset = address - kSharedBase;
  if (count == 0 || count > kMaxMbarrierCount) {
    fail(lane, ErrorKind::kMbarrier, site, "mbarrier with %u arrivals: 1 to %u are allowed", count,
         kMaxMbarrierCount);
  }
  u16& slot = slots_[offset / 8];
  if (slot != 0 && barriers_[slot - 1].alive) {
    fail(lane, ErrorKind::kMbarrier, site,
         "an mbarrier is initialised already at byte %u of shared memory, at {site:%u}: "
         "mbarrier.inval comes first",
         offset, barriers_[slot - 1].init_site);
  }
  Mbarrier barrier{};
  barrier.offset = offset;
  barrier.count = barrier.pending = count;
  barrier.agent = lane->block->sm90->knowledge.new_agent();
  barrier.init_thread = thread_of(lane);
  barrier.init_clock = lane->clock;
  barrier.init_site = site;
  barrier.alive = true;
  if (barrier.agent == kMaxAgents) {
    fail(lane, ErrorKind::kMbarrier, site, "more than %u mbarriers in one thread block",
         kMaxAgents);
  }
  barriers_.push_back(barrier);
  slot = u16(barriers_.size());
}

void Mbarriers::inval(Lane* lane, u32 address, u32 site) {
  Mbarrier& barrier = use(lane, address, site);
  for (u32 lanes : barrier.waiting) {
    if (lanes != 0) fail(lane, ErrorKind::kMbarrier, site, "mbarrier.inval while threads wait");
  }
  barrier.alive = false;
}

void Mbarriers::fence(Lane* lane) {
  for (Mbarrier& barrier : barriers_) barrier.fenced |= barrier.init_thread == thread_of(lane);
}

// From the thread's next arrival at the cluster's barrier on.
void Mbarriers::show_to_cluster(Lane* lane) {
  fence(lane);
  for (Mbarrier& barrier : barriers_) {
    if (barrier.init_thread != thread_of(lane) || barrier.shown_from != 0) continue;
    barrier.shown_from = lane->cluster_arrivals + 1;
  }
}

bool Mbarriers::add_transactions(Block* block, Mbarrier& barrier, s64 bytes) {
  barrier.tx += bytes;
  activity_ += 1;
  if (barrier.tx > kMaxMbarrierCount || -barrier.tx > kMaxMbarrierCount) return false;
  if (bytes < 0) complete_if_due(block, barrier);
  return true;
}

u64 Mbarriers::arrive(Lane* lane, Block* own, u32 address, u32 count, u32 expected_bytes,
                      Ordering ordering, u32 site) {
  const bool afar = lane->block != own;
  Mbarrier& barrier = use_in(own, lane, address, site);
  u64 state = barrier.phase;
  if (!add_transactions(own, barrier, expected_bytes)) {
    fail(lane, ErrorKind::kMbarrier, site, "%lld bytes announced: an mbarrier counts to %u",
         static_cast<long long>(barrier.tx), kMaxMbarrierCount);
  }
  if (count > barrier.pending || count == 0) {
    fail(lane, ErrorKind::kMbarrier, site,
         "%u arrivals at the mbarrier at byte %u of shared memory (of {site:%u}), which waits for "
         "%u more of %u in its phase %llu",
         count, barrier.offset, barrier.init_site, barrier.pending, barrier.count,
         ull(barrier.phase));
  }
  Sm90* sm90 = own->sm90;
  if (afar) sm90->uses.note_arrival(own, lane, barrier.offset, site);
  if (!afar && ordering != Ordering::kRelaxed) {
    sm90->knowledge.release(lane, barrier.arrived, barrier.completed, site);
  } else if (ordering != Ordering::kRelaxed) {
    sm90->knowledge.release_operations_from_afar(lane, barrier.arrived, barrier.completed);
    if (ordering == Ordering::kInCluster) {
      sm90->knowledge.release_from_afar(lane, barrier.arrived_afar, barrier.completed_afar, site);
    }
  }
  barrier.pending -= count;
  complete_if_due(own, barrier);
  return state;
}

void Mbarriers::complete_if_due(Block* block, Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.tx != 0) return;
  barrier.pending = barrier.count;
  barrier.phase += 1;
  if (Races* races = block->races) {
    Knowledge& knowledge = block->sm90->knowledge;
    if (barrier.arrived == nullptr) barrier.arrived = races->copy_of(barrier.completed);
    knowledge.set_tick(barrier.arrived, barrier.agent, u32(barrier.phase));
    races->complete(barrier.arrived);
    if (barrier.completed) races->drop(barrier.completed);
    barrier.completed = barrier.arrived;
    barrier.arrived = nullptr;
    if (barrier.arrived_afar != nullptr) {
      races->complete(barrier.arrived_afar);
      if (barrier.completed_afar) races->drop(barrier.completed_afar);
      barrier.completed_afar = barrier.arrived_afar;
      barrier.arrived_afar = nullptr;
    }
  }
  wake(block, barrier);
}

void Mbarriers::wake(Block* block, Mbarrier& barrier) {
  for (u32 warp = 0; warp < block->n_warps; ++warp) {
    if (barrier.waiting[warp] == 0) continue;
    make_runnable(&block->warps[warp], barrier.waiting[warp]);
    barrier.waiting[warp] = 0;
  }
}

bool Mbarriers::wake_all(Block* block) {
  bool any = false;
  for (Mbarrier& barrier : barriers_) {
    any |= std::any_of(barrier.waiting, barrier.waiting + kMaxWarps, [](u32 l) { return l != 0; });
    wake(block, barrier);
  }
  return any;
}

bool Mbarriers::wait(Lane* lane, u32 address, u64 state, bool by_parity, Ordering ordering,
                     u32 site) {
  if (by_parity && state > 1) {
    fail(lane, ErrorKind::kMbarrier, site, "phase parity %llu: 0 or 1 are allowed", ull(state));
  }
  Mbarrier& barrier = use(lane, address, site);
  auto is_over = [&] { return by_parity ? (barrier.phase & 1) != state : barrier.phase > state; };
  if (!is_over()) {
    // A wait may end before the phase does (PTX ISA, mbarrier.try_wait): whoever asks again in a
    // loop is right under every schedule, and whoever does not is found under a random one.
    Schedule& schedule = lane->block->schedule;
    if (schedule.order == Order::kRandom && schedule.random(4) == 0) {
      continue_in_order(lane, &lane->block->warps[schedule.pick(lane->block->runnable_warps)]);
      return false;
    }
    lane->wait = Wait::kMbarrier;
    lane->wait_site = site;
    lane->wait_detail = barrier.offset;
    barrier.waiting[lane->warp_id] |= 1u << lane->lane_id;
    emulator::wait(lane);
    if (!barrier.alive || !is_over()) return false;
  }
  Knowledge& knowledge = lane->block->sm90->knowledge;
  if (ordering != Ordering::kRelaxed) knowledge.acquire(lane, barrier.completed, site);
  if (ordering == Ordering::kInCluster) knowledge.acquire(lane, barrier.completed_afar, site);
  return true;
}

void Mbarriers::describe_waits(char* text, u64 size) const {
  u64 used = 0;
  for (const Mbarrier& barrier : barriers_) {
    u32 waiters = 0;
    for (u32 lanes : barrier.waiting) waiters += u32(__builtin_popcount(lanes));
    if (waiters == 0 || used >= size) continue;
    used += u64(snprintf(text + used, size - used,
                         " mbarrier 0x%x (of {site:%u}), for which %u threads wait: phase %llu "
                         "has had %u of %u arrivals",
                         barrier.offset, barrier.init_site, waiters, ull(barrier.phase),
                         barrier.count - barrier.pending, barrier.count));
    if (barrier.tx != 0 && used < size) {
      const char* what = barrier.tx > 0 ? ", and %lld bytes announced that no copy in flight brings"
                                        : ", and %lld bytes landed that nobody announced";
      const s64 bytes = barrier.tx > 0 ? barrier.tx : -barrier.tx;
      used += u64(snprintf(text + used, size - used, what, static_cast<long long>(bytes)));
    }
    if (used < size) used += u64(snprintf(text + used, size - used, ";"));
  }
}

}  // namespace emulator
