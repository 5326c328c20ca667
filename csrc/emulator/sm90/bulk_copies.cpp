#include "bulk_copies.h"

#include <stdio.h>
#include <string.h>

#include "collective.h"
#include "memory.h"
#include "race_report.h"
#include "scalar.h"
#include "sm90.h"

namespace emulator {

namespace {

// Finds the range of a row in global memory, which has any alignment.
const GlobalRange& range_of(Lane* lane, u64 address, u32 bytes, Access access, u32 site) {
  if (!range_allows(lane->recent_range, address, bytes, access)) {
    find_range(lane, address, 1, access, site);
    if (!range_allows(lane->recent_range, address, bytes, access)) {
      find_range(lane, address + bytes - 1, 1, access, site);
      fail(lane, ErrorKind::kOutOfBounds, site, "bulk copy of %u bytes across two ranges", bytes);
    }
  }
  return *lane->recent_range;
}

// Checks a row, and shows it to the race detector; true if kernels may write there.
bool check_global(Lane* lane, u64 address, u32 bytes, Access access, u32 site) {
  if (!range_of(lane, address, bytes, access, site).writable) return false;
  if (lane->watch == 0) return true;
  Sm90* sm90 = lane->block->sm90;
  if (sm90->shadow.tracked()) sm90->global.check_fences(lane, address, bytes, site);
  for_each_line(address, bytes,
                [&](u64 line, u32 n_bytes) { watch_global(lane, line, n_bytes, access, site); });
  return true;
}

// Moves a row between its place in global memory and the swizzled one in shared memory.
template <typename Move>
void for_each_piece(const TensorMap& map, const BoxRow& row, u32 base, Move move) {
  for (u32 done = 0; done < row.bytes;) {
    u32 at = row.first + done;
    u32 bytes = std::min(row.bytes - done, 16 - at % 16);
    u32 linear = base + kSharedBase + row.offset + at;
    u32 place = (swizzled(linear & ~15u, map.swizzle) | (linear & 15)) - kSharedBase;
    move(place, row.address + done, bytes);
    done += bytes;
  }
}

// Each sum by itself, as other blocks may add at the same time.
void add_f32(u64 sums, const u8* terms, u32 bytes) {
  for (u32 at = 0; at < bytes; at += sizeof(f32)) {
    const f32 term = emulator::load<f32>(terms + at);
    atomic_update<f32, u32>(reinterpret_cast<u8*>(sums) + at, [&](f32 old) { return old + term; });
  }
}

// Sets the bytes that a load writes, and not those between its rows.
void fill(const TensorMap& map, u8* shared, u32 offset, int value) {
  for (u32 row = 0, rows = map.n_rows(); row < rows; ++row) {
    for_each_piece(map, {row * map.pitch(), 0, 0, map.row_bytes()}, offset,
                   [&](u32 to, u64, u32 bytes) { memset(shared + to, value, bytes); });
  }
}

// What an H200 ends with an illegal instruction for; the PTX ISA does not say so.
void check_place(Lane* lane, const TensorMap& map, const s32* place, bool is_store, u32 site) {
  if (s64{place[0]} * map.element_bytes % 16 != 0) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "tensor copy from innermost coordinate %d: elements of %u bytes, and boxes must begin at "
         "multiples of 16 bytes",
         place[0], map.element_bytes);
  }
  for (u32 i = 0; is_store && i < map.rank; ++i) {
    if (place[i] >= 0) continue;
    fail(lane, ErrorKind::kInvalidOperand, site,
         "tensor store to coordinate %d of dimension %u: only loads may begin before the start",
         place[i], i);
  }
}

}  // namespace

u32 shared_offset(Lane* lane, const Sm90& sm90, u32 address, u32 bytes, u32 alignment,
                  Access access, u32 site) {
  u32 offset = address - kSharedBase;
  if (address % alignment != 0)
    fail_window(lane, "shared", s64{address} - kSharedBase, lane->shared_bytes, alignment, access,
                site);
  if (u64{offset} + bytes > lane->shared_bytes) {
    fail(lane, ErrorKind::kOutOfBounds, site,
         "bulk copy of %u bytes at byte %lld of %u bytes of shared memory", bytes,
         static_cast<long long>(address) - kSharedBase, lane->shared_bytes);
  }
  if (const Mbarrier* barrier = sm90.mbarriers.overlapping(offset, bytes)) {
    fail(lane, ErrorKind::kMbarrier, site,
         "bulk copy of bytes %u to %u of shared memory, where the mbarrier of {site:%u} lies at %u",
         offset, offset + bytes - 1, barrier->init_site, barrier->offset);
  }
  return offset;
}

void BulkCopies::start_block() {
  in_flight_.clear();
  std::fill(groups_.begin(), groups_.end(), Groups{});
  for (std::vector<Store>& stores : written_) stores.clear();
}

void BulkCopies::load(Lane* lane, const TensorMap& map, const s32* place, u32 destination,
                      u32 barrier_address, u32 site) {
  Sm90* sm90 = block_->sm90;
  const bool own = lane->block == block_;
  const u32 alignment = map.rank == 1 && map.element_bytes == 16 ? 16 : 128;
  const u32 bytes = map.shared_bytes();
  check_place(lane, map, place, /*is_store=*/false, site);
  u32 offset = shared_offset(lane, *sm90, destination, bytes, alignment, Access::kAsyncWrite, site);
  Mbarrier& barrier = sm90->mbarriers.use_in(block_, lane, barrier_address, site);
  bool writable = false, is_whole = true;
  for_each_row(map, place, [&](const BoxRow& row) {
    is_whole &= row.bytes == map.row_bytes();
    if (row.bytes == 0) return;
    writable |= check_global(lane, row.address, row.bytes, Access::kRead, site);
  });
  // For what lies outside an H200 accesses the map's first address, and faults if nothing is there.
  if (!is_whole) find_range(lane, map.address, 1, Access::kRead, site);
  u32 operation = 0;
  if (sm90->shadow.tracked()) {
    if (own && !barrier.fenced) {
      report_race(*lane->block->races, lane, site, RaceKind::kBarrierUnfenced,
                  {barrier.init_thread, barrier.init_site}, barrier.offset, 8);
    }
    operation = begin_write(lane, barrier, offset, bytes, site);
    for_each_row(map, place, [&](const BoxRow& row) {
      if (own && writable && row.bytes != 0) {
        sm90->global.keep_load(lane, operation, row.address, row.bytes);
      }
    });
  }
  u8* shared = block_->lanes->shared;
  fill(map, shared, offset, 0xFF);
  Load load{map, {}, offset, &barrier, operation, site, own ? lane : block_->lanes, 0, {}};
  std::copy_n(place, map.rank, load.place);
  if (!own) load.sender = lane;
  in_flight_.push_back(load);
  block_->counts.bulk_loads += 1;
  land_if_early(lane);
  own ? surprise(lane) : surprise_from_afar(lane);
}

void BulkCopies::land_if_early(Lane* lane) {
  if (!early_) return;
  land(block_, in_flight_.size() - 1);
  if (block_->error.kind != ErrorKind::kNone) {
    switch_context(lane->context, lane->block->scheduler);
  }
}

bool BulkCopies::land_one(Block* block) {
  if (in_flight_.empty()) return false;
  u64 index = 0;
  if (block->schedule.order == Order::kReverse) index = in_flight_.size() - 1;
  if (block->schedule.order == Order::kRandom) {
    index = block->schedule.random(u32(in_flight_.size()));
  }
  land(block, index);
  return true;
}

void BulkCopies::land(Block* block, u64 index) {
  const Load load = in_flight_[index];
  in_flight_.erase(in_flight_.begin() + s64(index));
  u8* shared = load.lane->shared;
  u32 landed = load.sent_bytes;
  if (landed != 0) {
    const u8* from = load.from != nullptr ? load.from->lanes->shared + load.source : load.word;
    memcpy(shared + load.destination, from, landed);
  } else {
    landed = load.map.box_bytes();
    fill(load.map, shared, load.destination, 0);  // what lies outside the tensor
    for_each_row(load.map, load.place, [&](const BoxRow& row) {
      for_each_piece(load.map, row, load.destination, [&](u32 to, u64 from, u32 bytes) {
        memcpy(shared + to, reinterpret_cast<const void*>(from), bytes);
      });
    });
  }
  Sm90* sm90 = block->sm90;
  if (sm90->shadow.tracked()) {
    sm90->shadow.landed(load.operation, u32(load.barrier->phase) + 1);
    if (load.sender != nullptr) note_landing(load);
  }
  if (!sm90->mbarriers.add_transactions(block, *load.barrier, -s64{landed})) {
    record_error(load.lane, ErrorKind::kMbarrier, load.site,
                 "the mbarrier at byte %u of shared memory counts more than a million bytes that "
                 "nobody announced",
                 load.barrier->offset);
  }
}

void BulkCopies::surprise(Lane* lane) {
  Block* block = lane->block;
  if (block->schedule.order != Order::kRandom || block->schedule.random(4) != 0) return;
  land_one(block);
  if (block->error.kind != ErrorKind::kNone) switch_context(lane->context, block->scheduler);
  continue_in_order(lane, &block->warps[block->schedule.pick(block->runnable_warps)]);
}

void BulkCopies::store(Lane* lane, const TensorMap& map, const s32* place, u32 source, StoreBy by,
                       u32 site) {
  Sm90* sm90 = lane->block->sm90;
  const u32 alignment = map.rank == 1 && map.element_bytes == 16 ? 16 : 128;
  const u32 bytes = map.shared_bytes();
  check_place(lane, map, place, /*is_store=*/true, site);
  u32 offset = shared_offset(lane, *sm90, source, bytes, alignment, Access::kRead, site);
  Groups& groups = groups_[thread_of(lane)];
  if (groups.agent == 0) {
    groups.agent = sm90->knowledge.new_agent() + 1;
    if (groups.agent > kMaxAgents) {
      fail(lane, ErrorKind::kInvalidOperand, site,
           "the emulator follows mbarriers, warpgroups and threads with bulk stores, %u in all",
           kMaxAgents);
    }
  }
  groups.uncommitted += 1;
  groups.site = site;
  lane->block->counts.bulk_stores += 1;
  if (sm90->shadow.tracked()) {
    u32 operation = sm90->shadow.begin(
        {AsyncKind::kBulkStore, groups.agent - 1, groups.commits + 1, thread_of(lane), site});
    sm90->shadow.read(operation, Observers(lane), offset, bytes);
    Store& store = written_[thread_of(lane)].emplace_back(Store{map, {}, groups.commits + 1, site});
    std::copy_n(place, map.rank, store.place);
  }
  for_each_row(map, place, [&](const BoxRow& row) {
    if (row.bytes == 0) return;
    const bool adds = by == StoreBy::kAdding;
    check_global(lane, row.address, row.bytes, adds ? adds_ : Access::kAsyncWrite, site);
    for_each_piece(map, row, offset, [&](u32 from, u64 to, u32 count) {
      if (adds) return add_f32(to, lane->shared + from, count);
      memcpy(reinterpret_cast<void*>(to), lane->shared + from, count);
    });
  });
}

void BulkCopies::commit_group(Lane* lane) {
  Groups& groups = groups_[thread_of(lane)];
  groups.commits += 1;
  groups.uncommitted = 0;
}

void BulkCopies::wait_group(Lane* lane, u32 pending_groups, Until until) {
  Groups& groups = groups_[thread_of(lane)];
  if (groups.commits <= pending_groups) return;
  groups.waited = std::max(groups.waited, groups.commits - pending_groups);
  if (groups.agent != 0) {
    lane->block->sm90->knowledge.learn(lane, groups.agent - 1, groups.waited);
  }
  if (until == Until::kWritten) land_stores(lane, groups.commits - pending_groups);
}

// The first groups of the thread have written.
void BulkCopies::land_stores(Lane* lane, u32 groups) {
  std::vector<Store>& stores = written_[thread_of(lane)];
  const auto end = std::find_if(stores.begin(), stores.end(),
                                [&](const Store& store) { return store.group > groups; });
  for (auto store = stores.begin(); store != end; ++store) {
    for_each_row(store->map, store->place, [&](const BoxRow& row) {
      if (row.bytes == 0) return;
      range_of(lane, row.address, row.bytes, Access::kWrite, store->site);
      land_bulk_write(lane, row.address, row.bytes, store->site);
    });
  }
  stores.erase(stores.begin(), end);
}

void BulkCopies::exit_lane(Lane* lane) {
  const Groups& groups = groups_[thread_of(lane)];
  if (groups.agent == 0 || (groups.uncommitted == 0 && groups.waited == groups.commits)) return;
  fail(lane, ErrorKind::kPendingAsyncCopy, groups.site,
       "the thread exits while %u groups of its bulk stores may still read shared memory%s: no "
       "cp.async.bulk.wait_group follows them",
       groups.commits - groups.waited + (groups.uncommitted != 0),
       groups.uncommitted ? ", one of them not committed" : "");
}

void BulkCopies::finish_block(Block* block) {
  if (in_flight_.empty()) return;
  const Load& load = in_flight_.front();
  record_error(load.lane, ErrorKind::kPendingAsyncCopy, load.site,
               "the thread block ends while %zu of %s are in flight: nobody waits for them",
               in_flight_.size(),
               load.from != nullptr   ? "the copies to it"
               : load.sent_bytes != 0 ? "the words stored to it"
                                      : "its bulk loads");
  (void)block;
}

}  // namespace emulator
