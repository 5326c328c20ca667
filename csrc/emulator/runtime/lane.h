// What one CUDA thread (a lane of a warp) carries. Translated kernels see this record directly.
#pragma once

#include "context_switch.h"
#include "types.h"

namespace emulator {

struct Block;
struct Warp;
struct AsyncCopies;
struct Seen;
class Traffic;

// Why a lane is not running. The names (wait_report.cpp) appear in reports.
enum class Wait : u32 {
  kNone,
  kShuffle,
  kVote,
  kReduce,
  kWarpBarrier,
  kLdmatrix,
  kMma,
  kBlockBarrier,
  kStmatrix,
  kElect,
  kWgmma,
  kMbarrier,
  kSetmaxnreg,
  kClusterBarrier,
  kCount
};

// A half-open range of host addresses that the kernel may touch: [begin, begin + bytes).
struct GlobalRange {
  u64 begin = 0;
  u64 bytes = 0;
  u32 writable = 0;
  u32 index = 0;  // position in the launch's list, names the range in reports
};

// The thread block's place in the launch.
struct Position {
  u32 ntid[3];
  u32 ctaid[3];
  u32 nctaid[3];
  u32 cluster;  // blocks of one
};

struct Lane {
  // Memory that the inline checks in memory.h need.
  u8* shared;
  u32 shared_bytes;
  u32 local_bytes;
  u8* local;
  const u8* params;
  const GlobalRange* recent_range;  // of the last global access
  u32 watch;                        // kWatchRaces, kWatchSchedule: see memory.h
  bool awaits_grids;                // griddepcontrol.wait is still ahead
  s64 branch_budget;                // backward branches left before the launch is stopped

  u32 lane_id;
  u32 warp_id;
  u32 n_warps;
  bool carry;  // the condition code that add.cc sets
  u32 tid[3];
  const Position* position;
  Warp* warp;
  Block* block;
  AsyncCopies* copies;
  Traffic* traffic;  // null unless the launch counts; then the kernel is the counting variant
  u32* executions;   // of each basic block since the warp's last barrier
  u64 global_loads, global_stores;

  // The race detector's (race.h).
  u32 clock;
  u32 barrier_site;  // of the last barrier passed
  Seen* seen;

  // Of the cluster's barrier (sm90/cluster.h).
  u32 cluster_arrivals, cluster_waits;
  u32 cluster_site;  // of its last arrival, if that was aligned, else 0

  // Where and why it waits; the operands live on its own stack and are exchanged through this
  // pointer, so a collective copies nothing.
  void* operands;
  Wait wait;
  u32 wait_site;    // PTX line
  u32 wait_detail;  // lane mask or barrier number

  Context context;
};

// Its number in the block.
inline u32 thread_of(const Lane* lane) { return lane->warp_id * kWarpSize + lane->lane_id; }

}  // namespace emulator
