// State of one worker for kernels that use Hopper's asynchronous units. Other kernels have none
// (Block::sm90 is null) and pay one test for it at a few places.
#pragma once

#include <vector>

#include "async_shadow.h"
#include "block.h"
#include "bulk_copies.h"
#include "global_async.h"
#include "knowledge.h"
#include "mbarrier.h"
#include "register_pool.h"
#include "uses_from_afar.h"
#include "warpgroup.h"

namespace emulator {

struct Sm90 {
  Block* block;
  Knowledge knowledge;
  Mbarriers mbarriers;
  BulkCopies bulk;
  Warpgroups warpgroups;
  RegisterPool registers;
  AsyncShadow shadow;
  GlobalAsync global;
  UsesFromAfar uses;

  Sm90(Block* block, u32 shared_bytes, bool early_loads, bool ordered_sums, bool warps_meet);
  void start_block();

  // Nobody can run: lands a copy, or lets those who poll a barrier go on. False: a deadlock.
  bool make_progress();

  // The thread ends; the last thread of the block has ended.
  void exit_lane(Lane* lane);
  void finish_block();

 private:
  struct Activity {  // since when nothing has happened
    u64 barriers, block_barriers;
    u32 alive;
    bool operator==(const Activity&) const = default;
  };
  void check_named_barriers() const;

  Activity last_stall_{};
};

}  // namespace emulator
