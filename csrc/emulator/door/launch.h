// The C interface that Python calls (py/flash_helpers/emulator/door/abi.py).
#pragma once

#include "block.h"
#include "errors.h"
#include "kernel_info.h"
#include "lane.h"
#include "race.h"
#include "traffic.h"
#include "types.h"

namespace emulator {

struct LaunchRequest {
  const KernelInfo* kernel;
  const u8* params;
  const GlobalRange* ranges;  // sorted, disjoint
  u32 n_ranges;
  u32 grid[3];
  u32 block[3];
  u32 dynamic_shared_bytes;
  u32 cluster;  // blocks of one, which divide grid[0]
  u32 n_workers;
  u32 order;  // Order
  u32 finds_races;
  u32 early_loads;   // bulk loads land when they are issued
  u32 ordered_sums;  // bulk reductions of the same place race, unless they are ordered
  u32 warps_meet;    // those of a warpgroup, where they commit matmuls
  u64 seed;          // of random schedules
  u64 max_backward_branches;
  const TrafficRequest* traffic;  // null: nothing is counted
};

struct LaunchResult {
  ErrorRecord error;
  Counts counts;
  RaceTable races;
  u64 blocks_run;
};

extern "C" void emulator_launch(const LaunchRequest* request, LaunchResult* result);

// Prepares a fiber to run its kernel from the start.
void start_lane(Lane* lane, u8* stack, u64 stack_bytes);

}  // namespace emulator
