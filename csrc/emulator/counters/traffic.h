// Counts of a launch that asks for them: executions of every basic block by a warp, wavefronts of
// every shared and sectors of every global access. Only the counting variant of a translated
// kernel (py/flash_helpers/emulator/counters/counting.py) calls in here, so the other one pays
// nothing.
//
// Lanes are fibers, so the accesses of one warp instruction come one by one. Those belong together
// that are each lane's k-th execution of the basic block since the warp last met at a barrier.
#pragma once

#include <vector>

#include "block.h"
#include "lane.h"
#include "types.h"

namespace emulator {

struct AccessCounts {
  u64 wavefronts;
  u64 ideal_wavefronts;
  u64 sectors;
  u64 ideal_sectors;
};

// What Python asks for and receives. An access is an instruction that touches memory.
struct TrafficRequest {
  u32 n_blocks;
  u32 n_accesses;
  u64* executions;         // per basic block, of warps
  AccessCounts* accesses;  // per access
};

enum class Repeats : bool { kMerge, kSerialise };  // same word: loads and stores, atomics

class Traffic {  // of one OS thread
 public:
  Traffic(const TrafficRequest& request, u32 n_threads);

  u32* executions_of(u32 thread) { return &lane_executions_[u64{thread} * request_.n_blocks]; }
  void access(Lane* lane, u32 access, u32 occurrence, u64 address, u32 bytes, Repeats repeats);
  // All lanes of the warp are at one point of the program: what they did is complete.
  void flush(const Warp& warp);
  void add_to_request() const;

 private:
  // One warp instruction on one address space.
  struct Group {
    u32 lanes;
    Repeats repeats;
    u8 bytes[kWarpSize];
    u64 addresses[kWarpSize];
  };

  // By occurrence.
  std::vector<Group>& site(const Warp& warp, u32 access, bool shared) {
    return sites_[(u64{warp.index} * request_.n_accesses + access) * 2 + shared];
  }
  static void count_shared(const Group& group, AccessCounts& counts);
  static void count_global(const Group& group, const RangeTable& ranges, AccessCounts& counts);

  const TrafficRequest& request_;
  std::vector<u32> lane_executions_;
  std::vector<u64> executions_;
  std::vector<AccessCounts> accesses_;
  std::vector<std::vector<Group>> sites_;
};

inline void count_block(Lane* lane, u32 block) { lane->executions[block] += 1; }

inline void count_access(Lane* lane, u32 access, u32 block, u64 address, u32 bytes,
                         Repeats repeats) {
  lane->traffic->access(lane, access, lane->executions[block] - 1, address, bytes, repeats);
}

}  // namespace emulator
