#include "race.h"

#include <string.h>

#include <algorithm>

#include "async_copies.h"
#include "block.h"
#include "block_order.h"
#include "memory.h"
#include "sm90_watch.h"

namespace emulator {

namespace {

enum class Space : bool { kShared, kGlobal };

// Shared records of earlier blocks are still there and mean nothing.
template <Space kSpace>
bool exists(const Races& races, const Record& record) {
  return kSpace == Space::kShared ? record.block == races.block : record.clock != 0;
}

// Does a barrier, or the program's own order, put what `record` says before what `lane` does now?
template <Space kSpace>
bool is_ordered(const Races& races, const Lane* lane, const Record& record) {
  if (kSpace == Space::kGlobal && record.block != races.block) {
    return BlockOrder::is_ordered(lane->seen, record) ||
           races.is_ordered_in_cluster(lane->seen, record);
  }
  if (record.clock <= lane->seen->floor) return true;
  u32 lanes = record.lanes;
  const bool own = record.warp == lane->warp_id && lane->block == races.owner;
  if (own) lanes &= ~(1u << lane->lane_id);
  const u32* ticks = lane->seen->ticks() + record.warp * kWarpSize;
  for (; lanes != 0; lanes &= lanes - 1) {
    if (record.clock > ticks[__builtin_ctz(lanes)]) return false;
  }
  return true;
}

// The lane of a record that is not ordered before `lane`.
u32 racing_thread(const Races& races, const Lane* lane, const Record& record) {
  u32 lanes = record.lanes;
  u32 first = record.warp * kWarpSize;
  if (record.block != races.block) return first + u32(__builtin_ctz(lanes));
  u32 self = record.warp == lane->warp_id ? 1u << lane->lane_id : 0;
  if (lanes != self) lanes &= ~self;
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    u32 thread = first + u32(__builtin_ctz(rest));
    if (record.clock > lane->seen->ticks()[thread]) return thread;
  }
  return first + u32(__builtin_ctz(lanes));
}

RaceKind kind_of(const Record& first, bool first_writes, bool second_writes) {
  if (first.in_flight() && first.bulk) {
    return second_writes ? RaceKind::kWriteToStore : RaceKind::kReadOfStore;
  }
  if (first.in_flight()) return second_writes ? RaceKind::kWriteInFlight : RaceKind::kReadInFlight;
  if (!first_writes) return RaceKind::kWriteAfterRead;
  return second_writes ? RaceKind::kWriteAfterWrite : RaceKind::kReadAfterWrite;
}

// A cell in memory.
struct Place {
  bool is_global;
  u64 address;  // shared offset or host address
  u32 bytes;
  const u8* memory;

  void operator++() {
    address += bytes;
    memory += bytes;
  }
};

[[gnu::cold, gnu::noinline]] void report(Races& races, const Lane* lane, u32 site, RaceKind kind,
                                         const Record* first, Place place,
                                         bool may_be_equal = false) {
  RaceReport race{};
  race.kind = kind;
  race.is_global = place.is_global;
  race.address = place.address;
  race.bytes = place.bytes;
  race.count = 1;
  race.latest_access = races.access;
  race.second = {races.block - u64{1}, thread_of(lane), site, lane->barrier_site, 0};
  if (first != nullptr) {
    u32 thread = racing_thread(races, lane, *first);
    race.first = {first->block - u64{1}, thread, first->site, 0, 0};
    if (first->block == races.block) {
      const Lane& other = races.owner->lanes[thread];
      race.first.barrier_site = other.barrier_site;
      race.first.passed_since = other.clock > (first->clock & ~Record::kInFlight);
    }
  }
  // Blocks that store the same do the same work: a second time, if not wrongly.
  const bool of_block = first != nullptr && first->block == races.block;
  if (may_be_equal && of_block && kind == RaceKind::kWriteAfterWrite && !first->atomic) {
    Suspect suspect{race, place.memory, 0};
    memcpy(&suspect.before, place.memory, place.bytes);
    races.suspects.push_back(suspect);
  } else {
    races.table.add(race);
  }
}

// Keeps `own` among the reads and atomic updates of a cell: with those of the same moment, or in
// place of one that is ordered before it, else in place of the last.
template <Space kSpace>
void keep(const Races& races, const Lane* lane, const Cells& cells, u64 cell, const Record& own) {
  u32 slot = kSpace == Space::kShared ? 1 + lane->warp_id : 1;
  u32 end = kSpace == Space::kShared ? slot + 1 : kGlobalSlots;
  for (;; ++slot) {
    Record& record = cells.slot(slot)[cell];
    bool same = exists<kSpace>(races, record) && record.clock == own.clock &&
                record.block == own.block && record.warp == own.warp &&
                record.atomic == own.atomic && record.update == own.update;
    u32 lanes = same ? record.lanes : 0;
    if (same || slot + 1 == end || !exists<kSpace>(races, record) ||
        is_ordered<kSpace>(races, lane, record)) {
      record = own;
      record.lanes |= lanes;
      return;
    }
  }
}

template <Space kSpace>
Record record_of(const Lane* lane, Access access, u32 site) {
  const bool async = access == Access::kAsyncWrite || access == Access::kAsyncAtomic;
  const u32 in_flight = async ? Record::kInFlight : 0;
  const bool atomic = is_atomic(access), update = atomic && writes(access);
  const bool bulk = kSpace == Space::kGlobal && async;
  return {lane->clock | in_flight, 1u << lane->lane_id,      site, atomic, update, bulk,
          lane->warp_id,           lane->block->races->block};
}

// Whether all that these records say lies before the last barrier of the whole block.
bool is_old(const Record* records, u32 count, u32 block, u32 floor, bool must_exist) {
  bool old = true;
  for (const Record* record = records; record != records + count; ++record) {
    old &= record->block == block ? record->clock <= floor : !must_exist;
  }
  return old;
}

// The usual case without a race, quickly; false: look closer.
bool passes(const Races& races, const Lane* lane, u64 cell, u32 count, const Record& own,
            Access access) {
  if (races.atomics || is_strong(access)) return false;
  const bool writes = emulator::writes(access);
  const u32 floor = lane->seen->floor;
  Record* target = races.shared.slot(writes ? 0 : 1 + lane->warp_id) + cell;
  if (!is_old(races.shared.slot(0) + cell, count, own.block, floor, !writes)) return false;
  for (u32 warp = 0; writes && warp < races.n_warps; ++warp) {
    const Record* reads = races.shared.slot(1 + warp) + cell;
    if (!is_old(reads, count, own.block, floor, false)) return false;
  }
  if (!writes && !is_old(target, count, own.block, floor, false)) return false;
  std::fill(target, target + count, own);
  return true;
}

template <Space kSpace>
void check(Lane* lane, const Cells& cells, u64 cell, u32 count, Access access, u32 site,
           Place place) {
  Races& races = *lane->block->races;
  const bool atomic = is_atomic(access);
  const bool writes = emulator::writes(access);
  if (!races.suspects.empty()) races.settle();
  const Record own = record_of<kSpace>(lane, access, site);
  if (kSpace == Space::kShared && passes(races, lane, cell, count, own, access)) return;
  races.access += 1;
  races.atomics |= atomic && kSpace == Space::kShared;
  const bool atomics = kSpace == Space::kShared ? races.atomics : races.global->atomics;
  const u32 n_slots = kSpace == Space::kShared ? 1 + races.n_warps : kGlobalSlots;
  for (u32 index = 0; index < count; ++index, ++cell, ++place) {
    Record& write = cells.slot(0)[cell];
    if (!exists<kSpace>(races, write)) {
      if (kSpace == Space::kShared && (!writes || atomic)) {
        report(races, lane, site, RaceKind::kReadUnwritten, nullptr, place);
      }
    } else if (write.in_flight() || !is_ordered<kSpace>(races, lane, write)) {
      report(races, lane, site, kind_of(write, true, writes), &write, place,
             access == Access::kWrite);
    }
    for (u32 slot = 1; slot < n_slots && (writes || atomics); ++slot) {
      const Record& other = cells.slot(slot)[cell];
      if (!exists<kSpace>(races, other) || (other.atomic && atomic)) continue;
      if (!writes && !other.update) continue;
      if (!other.in_flight() && is_ordered<kSpace>(races, lane, other)) continue;
      report(races, lane, site, kind_of(other, other.update, writes), &other, place);
    }
    if (writes && !atomic) {
      write = own;
    } else {
      keep<kSpace>(races, lane, cells, cell, own);
    }
  }
}

// Random schedules. ldmatrix accesses memory for lanes that wait: those cannot be switched from.
void preempt(Lane* lane) {
  Block* block = lane->block;
  constexpr u32 kMeanInterval = 32;
  if ((lane->warp->runnable >> lane->lane_id & 1) == 0) return;
  if (--block->schedule.until_preemption != 0) return;
  block->schedule.until_preemption = 1 + block->schedule.random(2 * kMeanInterval);
  continue_in_order(lane, &block->warps[block->schedule.pick(block->runnable_warps)]);
}

}  // namespace

void watch_shared(Lane* lane, u32 offset, u32 bytes, Access access, u32 site) {
  if (lane->watch & kWatchSchedule) preempt(lane);
  if ((lane->watch & kWatchRaces) == 0) return;
  Races& races = *lane->block->races;
  if (lane->block->sm90 != nullptr) watch_sm90(lane, offset, bytes, writes(access), site);
  u32 granule = races.global->granule_log2;
  check<Space::kShared>(lane, races.shared, offset >> granule, std::max(bytes >> granule, 1u),
                        access, site, {false, offset, 1u << granule, lane->shared + offset});
}

void watch_global(Lane* lane, u64 address, u32 bytes, Access access, u32 site) {
  if (lane->watch & kWatchSchedule) preempt(lane);
  if ((lane->watch & kWatchBlocks) && is_strong(access)) pause_block(lane);
  if ((lane->watch & kWatchRaces) == 0) return;
  if (lane->block->sm90 != nullptr && writes(access)) {
    watch_sm90_global(lane, address, bytes, site);
  }
  GlobalShadow& shadow = *lane->block->races->global;
  const u32 granule = shadow.granule_log2;
  const auto [cells, cell] = global_cells(lane, address);
  const LineLock lock(shadow, address);
  u64 start = address >> granule << granule;
  check<Space::kGlobal>(lane, cells, cell, std::max(bytes >> granule, 1u), access, site,
                        {true, start, 1u << granule, reinterpret_cast<u8*>(start)});
  if (shadow.order == nullptr || !is_strong(access)) return;
  if (access != Access::kStrongWrite) shadow.order->read_flag(lane, address);
  if (writes(access)) shadow.order->write_flag(lane, address, access);
}

bool Races::is_ordered_in_block(const Lane* lane, const Record& record) const {
  return is_ordered<Space::kShared>(*this, lane, record);
}

void land_async_write(Lane* lane, const AsyncCopy& copy) {
  Races& races = *lane->block->races;
  u32 offset = u32(copy.destination - lane->shared);
  const u32 granule = races.global->granule_log2;
  Record* writes = races.shared.slot(0);
  for (u32 byte = 0; byte < copy.bytes; byte += 1u << granule) {
    Record& write = writes[(offset + byte) >> granule];
    if (!write.in_flight() || write.lanes != 1u << lane->lane_id || write.warp != lane->warp_id ||
        write.site != copy.site) {
      continue;  // overwritten meanwhile, and reported
    }
    write.clock = lane->clock;
  }
  if (copy.watched_source == nullptr) return;
  lane->recent_range = copy.watched_source;
  watch_global(lane, reinterpret_cast<u64>(copy.source), copy.source_bytes, Access::kRead,
               copy.site);
}

}  // namespace emulator
