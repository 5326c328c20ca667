// Transaction barriers: 8 bytes of shared memory each, whose state lives here.
#pragma once

#include <vector>

#include "block.h"
#include "sm90_calls.h"

namespace emulator {

inline constexpr u32 kMaxMbarrierCount = (1u << 20) - 1;  // of arrivals, and of bytes

struct Mbarrier {
  u32 offset;  // in shared memory
  u32 count;   // arrivals of a phase
  u32 pending;
  s64 tx;     // bytes announced and not landed; negative where they landed first
  u64 phase;  // completed ones
  u32 agent;
  u32 init_thread, init_clock, init_site;
  bool fenced;     // by the thread that initialised it
  u32 shown_from;  // the first phase of the cluster's barrier that shows it to other blocks; 0:
                   // none
  bool alive;
  Seen* arrived;    // what those that arrived in this phase know; null: none yet, or not tracked
  Seen* completed;  // what those know who have waited
  // The same of arrivals from other blocks, for waits with the scope of the cluster.
  Seen *arrived_afar, *completed_afar;
  u32 waiting[kMaxWarps];
};

class Mbarriers {
 public:
  explicit Mbarriers(u32 shared_bytes) : slots_(shared_bytes / 8 + 1) {}

  void start_block();
  // Whether shared bytes [offset, offset + bytes) hold one.
  const Mbarrier* overlapping(u32 offset, u32 bytes) const;
  // The one at an address, if the lane may use it; else the launch fails or a race is reported.
  Mbarrier& use(Lane* lane, u32 address, u32 site);
  // The same for a lane of any block of the cluster; this one is `own`.
  Mbarrier& use_in(Block* own, Lane* lane, u32 address, u32 site);

  void init(Lane* lane, u32 address, u32 count, u32 site);
  void inval(Lane* lane, u32 address, u32 site);
  void fence(Lane* lane);
  void show_to_cluster(Lane* lane);
  // By a lane of any block of the cluster; this one is `own`.
  u64 arrive(Lane* lane, Block* own, u32 address, u32 count, u32 expected_bytes, Ordering ordering,
             u32 site);
  bool wait(Lane* lane, u32 address, u64 state, bool by_parity, Ordering ordering, u32 site);

  // Transactions: announced ones are positive. False: beyond the range of the counter.
  bool add_transactions(Block* block, Mbarrier& barrier, s64 bytes);

  u64 activity() const { return activity_; }
  bool wake_all(Block* block);  // false: nobody waits
  void describe_waits(char* text, u64 size) const;

 private:
  void check_place(Lane* lane, u32 address, u32 site) const;
  Mbarrier& at(Lane* lane, u32 address, u32 site);
  void complete_if_due(Block* block, Mbarrier& barrier);
  void wake(Block* block, Mbarrier& barrier);

  std::vector<Mbarrier> barriers_;
  std::vector<u16> slots_;  // by offset / 8: index + 1 into barriers_
  u64 activity_ = 0;
};

}  // namespace emulator
