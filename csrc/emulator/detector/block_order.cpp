#include "block_order.h"

#include <algorithm>

#include "block.h"
#include "device_calls.h"
#include "memory.h"

namespace emulator {

namespace {

void join(std::vector<u32>& into, const std::vector<u32>& from) {
  into.resize(std::max(into.size(), from.size()));
  for (u64 thread = 0; thread < from.size(); ++thread) {
    into[thread] = std::max(into[thread], from[thread]);
  }
}

void join(Known& into, const Known& from) {
  for (const auto& [block, ticks] : from) join(into[block], ticks);
}

bool contains(const Known& outer, const Known& inner) {
  return std::all_of(inner.begin(), inner.end(), [&](const auto& item) {
    const auto other = outer.find(item.first);
    return other != outer.end() &&
           std::equal(item.second.begin(), item.second.end(), other->second.begin(),
                      [](u32 mine, u32 theirs) { return mine <= theirs; });
  });
}

}  // namespace

bool BlockOrder::is_ordered(const Seen* seen, const Record& record) {
  if (seen->others == nullptr) return false;
  const auto block = seen->others->find(record.block);
  if (block == seen->others->end()) return false;
  for (u32 lanes = record.lanes; lanes != 0; lanes &= lanes - 1) {
    const u32 thread = record.warp * kWarpSize + u32(__builtin_ctz(lanes));
    if (record.clock > block->second[thread]) return false;
  }
  return true;
}

const Known* BlockOrder::merged(const Known* a, const Known* b) {
  if (a == b || b == nullptr || (a != nullptr && contains(*a, *b))) return a;
  if (a == nullptr || contains(*b, *a)) return b;
  Known& both = all_.emplace_back(*a);
  join(both, *b);
  return &both;
}

// Takes what the flags said that the thread has read; what it knows now is what the flags say that
// it will write.
void BlockOrder::fence(Lane* lane) {
  Races& races = *lane->block->races;
  Races::Flags& own = races.flags[thread_of(lane)];
  if (!own.read.empty()) {
    Seen* seen = races.copy_of(lane->seen);
    for (const auto& [block, known] : own.read) {
      if (!races.is_neighbour(block)) continue;
      u32* ticks = seen->ticks() + races.ticks_of(block);
      for (u32 thread = 0; thread < races.n_threads; ++thread) {
        ticks[thread] = std::max(ticks[thread], known[thread]);
      }
    }
    races.complete(seen);
    std::erase_if(own.read, [&](const auto& item) { return races.is_neighbour(item.first); });
    // Who asks again and again until a flag is set hears the same each time.
    if (seen->others == nullptr || !contains(*seen->others, own.read)) {
      seen->others = merged(seen->others, &all_.emplace_back(std::move(own.read)));
    }
    own.read = {};
    races.drop(lane->seen);
    lane->seen = seen;
  }
  if (own.fenced != nullptr) races.drop(own.fenced);
  own.fenced = lane->seen;
  own.fenced->references += 1;
  own.clock = lane->clock;
  lane->clock += 1;
}

void BlockOrder::read_flag(const Lane* lane, u64 address) {
  const auto flag = flags_.find(address);
  if (flag != flags_.end()) join(lane->block->races->flags[thread_of(lane)].read, flag->second);
}

// An atomic update adds to what was published there, a store replaces it.
void BlockOrder::write_flag(const Lane* lane, u64 address, Access access) {
  const Races& races = *lane->block->races;
  const Races::Flags& own = races.flags[thread_of(lane)];
  Known published;
  if (own.fenced != nullptr) {
    if (own.fenced->others != nullptr) published = *own.fenced->others;
    const u32 first = races.block - (races.block - 1) % races.cluster;
    for (u32 block = first; block < first + races.cluster; ++block) {
      const u32* ticks = own.fenced->ticks() + races.ticks_of(block);
      std::vector<u32> known(ticks, ticks + races.n_threads);
      if (block == races.block) known[thread_of(lane)] = own.clock;
      join(published[block], known);
    }
  }
  if (access == Access::kAtomic) {
    join(flags_[address], published);
  } else {
    flags_[address] = std::move(published);
  }
}

void fence_blocks(Lane* lane) {
  const Races* races = lane->block->races;
  if (races != nullptr && races->global->order) races->global->order->fence(lane);
}

}  // namespace emulator
