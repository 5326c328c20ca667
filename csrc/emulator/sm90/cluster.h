// The thread blocks of a cluster: which of them a shared address means, their common barrier, and
// words that one stores in the shared memory of another (st.async).
//
// One worker runs them in turns, each until none of its threads can go on. The barrier tells a
// block one thing about the others: which of their mbarriers are initialised. What else threads did
// before it stays unknown to the race detector, so only `.relaxed` arrivals are translated.
#pragma once

#include <vector>

#include "block.h"

namespace emulator {

// mapa.shared::cluster puts the rank of a block, plus one, above a shared address.
inline constexpr u32 kRankShift = 20;
inline constexpr u32 kMaxCluster = 16;

class Cluster {
 public:
  // Of blocks that are about to start.
  void start(std::vector<Block*> blocks);

  Block* block(u32 rank) const { return rank < blocks_.size() ? blocks_[rank] : nullptr; }
  u32 size() const { return u32(blocks_.size()); }

  void arrive(Lane* lane, u32 site);
  void wait(Lane* lane, u32 site);
  void exit_lane(const Lane* lane);

 private:
  void complete_if_due();

  std::vector<Block*> blocks_;
  u32 phase_ = 0;    // completed ones
  u32 arrived_ = 0;  // threads, in this phase
  u32 missing_ = 0;  // those that have neither arrived in it nor exited
  std::vector<Lane*> waiting_;
};

}  // namespace emulator
