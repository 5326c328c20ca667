// Warpgroup matmuls. A lane's wgmma is queued; the commit brings the lanes of a warp together and
// multiplies that warp's 16 rows. What the accumulators hold before the wait is the result already:
// touching them early is found from the program (py/flash_helpers/emulator/sm90/registers.py), and
// reads of shared memory count as in flight until the wait.
#pragma once

#include <memory>
#include <vector>

#include "async_shadow.h"
#include "block.h"
#include "sm90_calls.h"
#include "tensor_core.h"

namespace emulator {

struct Wgmma {
  WgmmaForm form;
  f32* d;
  u32 a[4];
  u64 a_descriptor;
  u64 b;
  bool accumulates;
  u32 site;
};

struct WgmmaQueue {  // of one lane
  std::vector<Wgmma> uncommitted;
  u32 commits, waited;
  u32 fences;
  struct Note {
    u32 group, fences;
  };
  std::vector<Note> notes;
};

class Warpgroups {
 public:
  // `meet`: no warp goes on behind a commit before the others of its warpgroup have come there.
  Warpgroups(u32 n_threads, bool meet)
      : meet_(meet), queues_(n_threads), groups_((n_threads + 127) / 128) {}

  void start_block();
  WgmmaQueue& queue(const Lane* lane) { return queues_[thread_of(lane)]; }
  void track_issue(Lane* lane, const Wgmma& wgmma);
  void execute(Warp* warp);  // what its lanes have queued
  void commit(Warp* warp);
  void meet(Lane* lane, u32 site) {  // behind its commit
    if (meet_) await_all(lane, queue(lane).commits, site);
  }
  void wait(Lane* lane, u32 pending_groups, u32 site);
  void exit_lane(Lane* lane);
  void finish_block(Block* block);

 private:
  static constexpr u32 kKept = 32;  // matmuls that a warp may be ahead of another
  struct Step {
    u64 number;  // + 1; 0: none
    u32 site;
    u64 a, b;
    bool accumulates;
    std::unique_ptr<FactorsB> factors;
  };
  struct Group {
    u32 agent;         // + 1; 0: has none yet
    u64 executed[4];   // matmuls of each warp
    u32 committed[4];  // groups
    u32 waiting[4];    // lanes for other warps of the warpgroup
    Step steps[kKept];
  };

  const FactorsB& factors_of(Warp* warp, const Wgmma& wgmma);
  void load_accumulators(Warp* warp, u32 index);
  void store_accumulators(Warp* warp, u32 index);
  void check_alike(Warp* warp);
  u32 agent_of(Lane* lane, u32 site);
  void track_reads(Lane* lane, const Observers& observers, const Wgmma& wgmma);
  void track_commit(Warp* warp, const Wgmma& wgmma);
  void await_all(Lane* lane, u32 n_groups, u32 site);

  const bool meet_;
  std::vector<WgmmaQueue> queues_;
  std::vector<Group> groups_;
  FactorsB spare_;
  FactorsA a_;
  alignas(64) f32 c_[16][kStride];  // the accumulators of a warp
};

}  // namespace emulator
