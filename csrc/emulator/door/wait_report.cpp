// The words for waits, and the report that no thread of a block can run.
#include <stdio.h>
#include <string.h>

#include <iterator>

#include "block.h"
#include "errors.h"
#include "sm90.h"

namespace emulator {

const char* wait_name(Wait wait) {
  static constexpr const char* kNames[] = {
      "nothing",  "shfl.sync", "vote.sync",  "redux.sync",     "bar.warp.sync",
      "ldmatrix", "mma.sync",  "bar.sync",   "stmatrix",       "elect.sync",
      "wgmma",    "mbarrier",  "setmaxnreg", "barrier.cluster"};
  static_assert(std::size(kNames) == u32(Wait::kCount));
  return kNames[u32(wait)];
}

namespace {

// What wait_detail is.
const char* detail_name(Wait wait) {
  switch (wait) {
    case Wait::kBlockBarrier:
      return "barrier";
    case Wait::kMbarrier:
      return "byte";
    case Wait::kClusterBarrier:
      return "phase";
    case Wait::kSetmaxnreg:
      return "registers";
    default:
      return "mask";
  }
}

bool wait_alike(const Warp& a, const Warp& b) {
  if (a.existing != b.existing || a.alive != b.alive) return false;
  for (u32 lanes = a.alive; lanes != 0; lanes &= lanes - 1) {
    const Lane& own = a.lanes[__builtin_ctz(lanes)];
    const Lane& other = b.lanes[__builtin_ctz(lanes)];
    if (own.wait != other.wait || own.wait_site != other.wait_site ||
        own.wait_detail != other.wait_detail) {
      return false;
    }
  }
  return true;
}

// Where every group of lanes waits.
void describe_waits(const Block* block, char* text, u64 size) {
  u64 used = 0;
  auto append = [&](auto... arguments) {
    if (used < size) used += u64(snprintf(text + used, size - used, arguments...));
  };
  append("no thread can run:");
  if (block->sm90 != nullptr) {
    block->sm90->mbarriers.describe_waits(text + used, size - used);
    used += strlen(text + used);
  }
  for (u32 index = 0; index < block->n_warps;) {
    const Warp& warp = block->warps[index];
    const u32 start = index++;
    while (index < block->n_warps && wait_alike(warp, block->warps[index])) ++index;
    char warps[32];
    snprintf(warps, sizeof warps, start + 1 == index ? "warp %u" : "warps %u to %u", start,
             index - 1);
    if (u32 exited = warp.existing & ~warp.alive)
      append(" %s: lanes 0x%08x exited;", warps, exited);
    for (u32 left = warp.alive; left != 0;) {
      const Lane& first = warp.lanes[__builtin_ctz(left)];
      u32 group = 0;
      for (u32 lanes = left; lanes != 0; lanes &= lanes - 1) {
        const Lane& lane = warp.lanes[__builtin_ctz(lanes)];
        if (lane.wait == first.wait && lane.wait_site == first.wait_site)
          group |= 1u << lane.lane_id;
      }
      left &= ~group;
      append(" %s: lanes 0x%08x wait at %s (%s 0x%x) at {site:%u};", warps, group,
             wait_name(first.wait), detail_name(first.wait), first.wait_detail, first.wait_site);
    }
  }
}

}  // namespace

void report_deadlock(Block* block) {
  const Lane* lane = block->lanes;
  while ((lane->warp->alive >> lane->lane_id & 1) == 0) ++lane;
  record_error(lane, ErrorKind::kDeadlock, lane->wait_site, "%s", "");
  describe_waits(block, block->error.message, sizeof block->error.message);
}

}  // namespace emulator
