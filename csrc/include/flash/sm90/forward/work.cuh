// What a consumer works on, and how consumers take turns.
#pragma once

#include "flash/ptx/named_barrier.cuh"
#include "flash/sm90/config.h"

namespace flash::sm90 {

// Named barriers; 0 is __syncthreads. Of each group g: kTurn + g, its turn to issue matmuls; kQRead
// + g, all its warps have read Q; kEvent + g, whether exponentials of its rows are too large.
enum NamedBarrier : int { kTurn = 1, kQRead = 4, kEvent = 7 };

// A tile as one group sees it.
struct Work {
  int position;  // in the list of tiles
  int row;       // the group's first
  int q_buffer;
  int n_blocks;   // KV blocks, the last one first
  int n_skipped;  // of them, blocks that only other groups' rows see
  int n_whole;    // of them, blocks that need no mask, at the end
};

// With `ping_pong`, the groups issue matmuls one after the other, so that one's softmax runs under
// the others' matmuls.
template <HopperForwardKernelConfig kConfig>
struct Turns {
  static constexpr int kThreads = 2 * HopperForwardKernelConfig::kGroupThreads;

  FLASH_DEVICE static void take(int group) {
    if constexpr (kConfig.ping_pong) ptx::bar_sync(kTurn + group, kThreads);
  }
  FLASH_DEVICE static void pass(int group) {
    if constexpr (kConfig.ping_pong) {
      ptx::bar_arrive(kTurn + (group + 1 == kConfig.n_mma_groups ? 0 : group + 1), kThreads);
    }
  }
};

}  // namespace flash::sm90
