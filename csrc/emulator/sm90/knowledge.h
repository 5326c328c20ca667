// What threads know of asynchronous operations, in the race detector's vector clocks.
//
// Behind the threads' ticks every Seen holds those of agents: one for each mbarrier (its completed
// phases), warpgroup (its completed matmul groups) and thread with bulk stores (its groups that
// have been read). An operation is over for a thread that has seen the agent's tick, by a wait of
// its own or through any barrier since.
#pragma once

#include "race.h"

namespace emulator {

inline constexpr u32 kMaxAgents = 128;

class Knowledge {
 public:
  explicit Knowledge(Races* races) : races_(races) {}

  void start_block();
  bool tracked() const { return races_ != nullptr; }
  Races* races() const { return races_; }

  // The number of a new agent; kMaxAgents if there are too many.
  u32 new_agent() { return n_agents_ < kMaxAgents ? n_agents_++ : kMaxAgents; }

  // `lane` takes over all that `source` (may be null) knows, at a wait.
  void acquire(Lane* lane, Seen* source, u32 site);
  // `lane` gives what it knows; its later accesses are not covered. `into` may be null, and is
  // created then, with what `base` (may be null) knows.
  void release(Lane* lane, Seen*& into, const Seen* base, u32 site);
  // The same for a lane of another block of the cluster, into what this one's threads can take.
  void release_from_afar(Lane* lane, Seen*& into, const Seen* base, u32 site);
  // Of what it knows, which asynchronous operations are over: all that an arrival says to another
  // block where it does not name the cluster.
  void release_operations_from_afar(const Lane* lane, Seen*& into, const Seen* base) const;
  void learn(Lane* lane, u32 agent, u32 tick);

  bool knows(const Seen* seen, u32 agent, u32 tick) const {
    return seen->ticks()[races_->n_threads_padded() + agent] >= tick;
  }
  void set_tick(Seen* seen, u32 agent, u32 tick) const {
    seen->ticks()[races_->n_threads_padded() + agent] = tick;
  }

 private:
  // Threads that knew the same and learn the same share the result.
  struct Step {
    Seen* before;
    Seen* source;  // null: an agent's tick instead
    u32 agent, tick;
    Seen* after;
  };
  static constexpr u32 kSteps = 16;

  template <typename Make>
  void take(Lane* lane, Seen* source, u32 agent, u32 tick, Make make);

  Races* races_;
  u32 n_agents_ = 0;
  u32 next_ = 0;
  Step steps_[kSteps] = {};
};

}  // namespace emulator
