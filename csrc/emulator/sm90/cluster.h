// The thread blocks of a cluster: which of them a shared address means, their common barrier, and
// words and bytes that one brings to the shared memory of another (st.async, cp.async.bulk).
//
// One worker runs them in turns, each until none of its threads can go on. The barrier tells a
// block which mbarriers of the others are initialised, and what threads know whose arrivals
// release.
#pragma once

#include <vector>

#include "block.h"
#include "sm90_calls.h"

namespace emulator {

// mapa.shared::cluster puts the rank of a block, plus one, above a shared address.
inline constexpr u32 kRankShift = 20;
inline constexpr u32 kRankMask = (1u << kRankShift) - 1;  // of what is below
inline constexpr u32 kMaxCluster = 16;

class Cluster {
 public:
  // Of blocks that are about to start.
  void start(std::vector<Block*> blocks);

  Block* block(u32 rank) const { return rank < blocks_.size() ? blocks_[rank] : nullptr; }
  u32 size() const { return u32(blocks_.size()); }

  void arrive(Lane* lane, Ordering ordering, Alignment alignment, u32 site);
  void wait(Lane* lane, u32 site);
  void check_exit(Lane* lane) const;  // before the lane counts as one that has ended
  void exit_lane(const Lane* lane);
  // Its copies to other blocks have landed, now that it has ended.
  void check_copies_of(const Block* block) const;

 private:
  void complete_if_due();

  std::vector<Block*> blocks_;
  // What those know whose arrivals in this phase released, and in the phases before: by rank, as
  // that block's threads can take it. Null: nothing.
  std::vector<Seen*> arrived_seen_, completed_seen_;
  u32 phase_ = 0;    // completed ones
  u32 arrived_ = 0;  // threads, in this phase
  u32 missing_ = 0;  // those that have neither arrived in it nor exited
  std::vector<Lane*> waiting_;
};

// The block that an address of the cluster lies in, the lane's own where it has no rank; null:
// none.
Block* block_in_cluster(const Lane* lane, u32 address);

}  // namespace emulator
