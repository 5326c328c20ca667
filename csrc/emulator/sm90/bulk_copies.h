// Bulk copies: of tensor boxes and of plain bytes, from and to shared memory; and reductions, which
// add to global memory in place of storing there.
//
// A load lands as late as possible: when no thread can run, or by chance under random schedules;
// or, if the launch asks for it, at once, which lets threads run further ahead of others. Until it
// lands its destination holds 0xFF bytes, NaN in every floating-point format. A store reads
// and writes at once; that its source may not change before the wait is the race detector's to
// watch.
#pragma once

#include <vector>

#include "block.h"
#include "sm90_calls.h"
#include "tensor_map.h"

namespace emulator {

struct Mbarrier;

class BulkCopies {
 public:
  BulkCopies(u32 n_threads, bool early) : early_(early), groups_(n_threads), written_(n_threads) {}

  void start_block();
  void load(Lane* lane, const TensorMap& map, const s32* place, u32 destination, u32 barrier,
            u32 site);
  void store(Lane* lane, const TensorMap& map, const s32* place, u32 source, StoreBy by, u32 site);
  void commit_group(Lane* lane);
  void wait_group(Lane* lane, u32 pending_groups, Until until);

  bool land_one(Block* block);  // false: nothing is in flight
  void surprise(Lane* lane);    // random schedules: lands one now and then
  void exit_lane(Lane* lane);
  void finish_block(Block* block);

 private:
  struct Load {
    TensorMap map;
    s32 place[TensorMap::kMaxRank];
    u32 destination;  // offset
    Mbarrier* barrier;
    u32 operation;  // in the async shadow
    u32 site;
    Lane* lane;
  };
  // Of the stores of one thread.
  struct Groups {
    u32 commits, waited;
    u32 uncommitted;
    u32 agent;  // + 1; 0: has none yet
    u32 site;   // of the last store
  };
  // Whose writes nobody has waited for yet.
  struct Store {
    TensorMap map;
    s32 place[TensorMap::kMaxRank];
    u32 group;  // as `commits` counts them
    u32 site;
  };

  void land(Block* block, u64 index);
  void land_stores(Lane* lane, u32 groups);

  bool early_;
  std::vector<Load> in_flight_;
  std::vector<Groups> groups_;               // by thread
  std::vector<std::vector<Store>> written_;  // by thread; where races are looked for
};

}  // namespace emulator
