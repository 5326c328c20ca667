// One thread block in execution: warps, barriers, and the choice of the next lane to run.
//
// An OS thread owns Blocks and runs thread blocks through them (door/resident.h). Fibers never
// leave their OS thread, so nothing here is shared between OS threads.
#pragma once

#include "device_calls.h"
#include "errors.h"
#include "lane.h"
#include "types.h"

namespace emulator {

inline constexpr u32 kMaxWarps = 32;
inline constexpr u32 kMaxBarriers = 16;

// A collective that some lanes of a warp have reached and others have not. Concurrent ones have
// disjoint masks, so the lowest lane of the mask is a unique slot.
struct PendingCollective {
  using Execute = void (*)(Warp* warp, u32 lanes);
  Wait kind;
  u32 site;
  u32 variant;  // mode and type, must be equal in all lanes
  u32 mask;     // 0: the slot is free
  u32 arrived;
  Execute execute;
};

struct Warp {
  Block* block;
  Lane* lanes;  // 32, of which `existing` are threads of the block
  u32 index;
  u32 existing;
  u32 alive;     // started and not exited
  u32 runnable;  // alive and not waiting
  u32 claimed;   // lanes that some pending collective expects
  u32 at_aligned_barrier;
  PendingCollective pending[kWarpSize];
};

struct Barrier {
  u32 expected;  // threads; 0: all threads of the block that have not exited
  u32 arrived;
  Ballot ballots;
  Seen* released;          // what threads at bar.arrive have published
  u32 waiting[kMaxWarps];  // lanes to wake, per warp
};

// Executed per warp; a cheap profile of the launch.
struct Counts {
  u64 collectives[u32(Wait::kCount)];
  u64 mma_instructions;
  u64 async_copies;
  u64 bulk_loads, bulk_stores;      // instructions
  u64 global_loads, global_stores;  // of threads: ld.global, st.global
};

struct RangeTable {
  const GlobalRange* ranges;  // sorted by begin
  u32 count;
};

// Who runs next: the first lane, the last, or a random one. Random schedules also change lanes
// before memory accesses.
enum class Order : u32 { kForward, kReverse, kRandom };
struct Schedule {
  Order order;
  u64 state;             // of the random numbers
  u32 until_preemption;  // watched accesses

  // splitmix64: any seed will do.
  u32 random(u32 bound) {
    u64 value = state += 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return u32((value >> 32) * bound >> 32);
  }

  // A member of a set that is not empty.
  u32 pick(u32 set) {
    if (order == Order::kForward) return u32(__builtin_ctz(set));
    if (order == Order::kReverse) return 31 - u32(__builtin_clz(set));
    u32 start = random(32);
    return (start + u32(__builtin_ctz(set >> start | set << (-start & 31)))) & 31;
  }
};

struct Races;
struct Sm90;
class Cluster;

struct Block {
  Warp warps[kMaxWarps];
  Barrier barriers[kMaxBarriers];
  Lane* lanes;
  u32 n_threads;
  u32 n_warps;
  u32 runnable_warps;
  u32 alive;
  Lane* paused;  // who let other blocks go first; null: nobody
  Schedule schedule;
  Races* races;      // null: not looked for
  Sm90* sm90;        // null: the kernel uses none of Hopper's asynchronous units
  Cluster* cluster;  // with sm90; of one block where the launch has no clusters
  u32 rank;          // in it

  Position position;

  RangeTable ranges;
  void (*entry)(Lane*);
  Context scheduler;
  ErrorRecord error;
  Counts counts;
};

template <typename Visit>
inline void for_each_lane(u32 lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(u32(__builtin_ctz(lanes)));
}

template <typename Visit>
inline void for_each_waiting(Block* block, const Barrier& barrier, Visit visit) {
  for (u32 warp = 0; warp < block->n_warps; ++warp) {
    for_each_lane(barrier.waiting[warp], [&](u32 lane) { visit(block->warps[warp].lanes[lane]); });
  }
}

inline void make_runnable(Warp* warp, u32 lanes) {
  warp->runnable |= lanes;
  warp->block->runnable_warps |= 1u << warp->index;
}

// The lane that runs next: of the same warp if possible (collectives complete soonest, and warps
// drift as far apart as barriers allow), else of another warp; null when nobody can run.
inline Lane* next_runnable(Warp* warp) {
  Block* block = warp->block;
  Schedule& schedule = block->schedule;
  if (warp->runnable == 0) {
    block->runnable_warps &= ~(1u << warp->index);
    if (block->runnable_warps == 0) return nullptr;
    warp = &block->warps[schedule.pick(block->runnable_warps)];
  } else if (schedule.order == Order::kRandom && schedule.random(8) == 0) {
    warp = &block->warps[schedule.pick(block->runnable_warps)];
  }
  return &warp->lanes[schedule.pick(warp->runnable)];
}

// Suspends `lane` until make_runnable() names it.
inline void wait(Lane* lane) {
  Warp* warp = lane->warp;
  warp->runnable &= ~(1u << lane->lane_id);
  Lane* next = next_runnable(warp);
  switch_context(lane->context, next ? next->context : warp->block->scheduler);
}

// After a collective the lanes of `warp` go on in order, not with the one that came last: the order
// of execution is the same everywhere, and the first thread to break a rule is the first in order.
inline void continue_in_order(Lane* lane, Warp* warp) {
  Lane* next = next_runnable(warp);
  if (next != lane) switch_context(lane->context, next->context);
}

// Prepares a thread block. Runs it to its end, and block->error tells whether it failed; or until
// a thread of it lets other blocks go first, or none can run and its cluster has others: false.
void start_block(Block* block, const u32 ctaid[3]);
bool run_block(Block* block);
void pause_block(Lane* lane);
// Nobody can run: do asynchronous operations let somebody go on?
bool resume_waiting(Block* block);

// Barriers count threads that have not exited, so an exit may complete one.
void complete_barriers(Block* block);

}  // namespace emulator
