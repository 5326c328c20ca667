#include "errors.h"

#include <stdarg.h>
#include <stdio.h>

#include <algorithm>
#include <iterator>

#include "block.h"
#include "sm90.h"

namespace emulator {

const char* wait_name(Wait wait) {
  static constexpr const char* kNames[] = {
      "nothing",  "shfl.sync", "vote.sync",  "redux.sync", "bar.warp.sync", "ldmatrix",  "mma.sync",
      "bar.sync", "stmatrix",  "elect.sync", "wgmma",      "mbarrier",      "setmaxnreg"};
  static_assert(std::size(kNames) == u32(Wait::kCount));
  return kNames[u32(wait)];
}

namespace {

void set_error(Lane* lane, ErrorKind kind, u32 site, const char* format, va_list arguments) {
  ErrorRecord& error = lane->block->error;
  error.kind = kind;
  error.site = site;
  std::copy_n(lane->block->position.ctaid, 3, error.ctaid);
  std::copy_n(lane->tid, 3, error.tid);
  vsnprintf(error.message, sizeof error.message, format, arguments);
}

// What wait_detail is.
const char* detail_name(Wait wait) {
  switch (wait) {
    case Wait::kBlockBarrier:
      return "barrier";
    case Wait::kMbarrier:
      return "byte";
    case Wait::kSetmaxnreg:
      return "registers";
    default:
      return "mask";
  }
}

}  // namespace

void record_error(Lane* lane, ErrorKind kind, u32 site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(lane, kind, site, format, arguments);
  va_end(arguments);
}

void fail(Lane* lane, ErrorKind kind, u32 site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(lane, kind, site, format, arguments);
  va_end(arguments);
  switch_context(lane->context, lane->block->scheduler);
  __builtin_unreachable();
}

void describe_waits(const Block* block, char* text, u64 size) {
  u64 used = 0;
  auto append = [&](auto... arguments) {
    if (used < size) used += u64(snprintf(text + used, size - used, arguments...));
  };
  append("no thread can run:");
  for (u32 index = 0; index < block->n_warps; ++index) {
    const Warp& warp = block->warps[index];
    if (u32 exited = warp.existing & ~warp.alive)
      append(" warp %u: lanes 0x%08x exited;", index, exited);
    for (u32 left = warp.alive; left != 0;) {
      const Lane& first = warp.lanes[__builtin_ctz(left)];
      u32 group = 0;
      for (u32 lanes = left; lanes != 0; lanes &= lanes - 1) {
        const Lane& lane = warp.lanes[__builtin_ctz(lanes)];
        if (lane.wait == first.wait && lane.wait_site == first.wait_site)
          group |= 1u << lane.lane_id;
      }
      left &= ~group;
      append(" warp %u: lanes 0x%08x wait at %s (%s 0x%x) at {site:%u};", index, group,
             wait_name(first.wait), detail_name(first.wait), first.wait_detail, first.wait_site);
    }
  }
  if (block->sm90 != nullptr && used < size) {
    block->sm90->mbarriers.describe_waits(text + used, size - used);
  }
}

}  // namespace emulator
