// Runs one thread block: starts its fibers, and says what went wrong if they stop early.
#include <string.h>

#include <algorithm>

#include "async_copies.h"
#include "block.h"
#include "cluster.h"
#include "collective.h"
#include "device_calls.h"
#include "launch.h"
#include "sm90.h"

namespace emulator {

namespace {

void reset_warp(Block* block, u32 index) {
  u32 threads = std::min(kWarpSize, block->n_threads - index * kWarpSize);
  u32 existing = ~0u >> (kWarpSize - threads);
  block->warps[index] = Warp{.block = block,
                             .lanes = block->lanes + index * kWarpSize,
                             .index = index,
                             .existing = existing,
                             .alive = existing};
  make_runnable(&block->warps[index], existing);
}

[[noreturn]] void exit_lane(Lane* lane) {
  Warp* warp = lane->warp;
  Block* block = warp->block;
  if (u32 in_flight = lane->copies->in_flight()) {
    fail(lane, ErrorKind::kPendingAsyncCopy, lane->copies->queue[lane->copies->landed].site,
         "the thread exits while %u of its cp.async copies are in flight: no wait follows them",
         in_flight);
  }
  if (block->sm90 != nullptr) block->sm90->exit_lane(lane);
  if (warp->at_aligned_barrier != 0) {
    const Lane& waiting = warp->lanes[__builtin_ctz(warp->at_aligned_barrier)];
    fail(lane, ErrorKind::kDivergentCollective, waiting.wait_site,
         "the thread exits while lanes 0x%08x of its warp wait at bar.sync %u",
         warp->at_aligned_barrier, waiting.wait_detail);
  }
  if (block->cluster != nullptr) block->cluster->check_exit(lane);
  warp->alive &= ~(1u << lane->lane_id);
  warp->runnable &= ~(1u << lane->lane_id);
  block->alive -= 1;
  leave_collectives(lane);
  complete_barriers(block);
  if (block->cluster != nullptr) block->cluster->exit_lane(lane);
  Lane* next = next_runnable(warp);
  switch_context(lane->context, next ? next->context : block->scheduler);
  __builtin_unreachable();
}

void fiber_main(void* const* frame) {
  auto* lane = static_cast<Lane*>(frame[1]);
  lane->block->entry(lane);
  exit_lane(lane);
}

Lane* first(Block* block) {
  return next_runnable(&block->warps[block->schedule.pick(block->runnable_warps)]);
}

// Who goes on after a pause: not the same thread, which may wait for another of its block. The next
// one in order, which begins anew behind the last.
Lane* behind(Lane* lane) {
  Block* block = lane->block;
  block->paused = nullptr;
  if (block->schedule.order == Order::kRandom) return first(block);
  const bool forward = block->schedule.order == Order::kForward;
  const u32 n_lanes = block->n_warps * kWarpSize;
  u32 thread = thread_of(lane);
  do {
    thread = (thread + (forward ? 1 : n_lanes - 1)) % n_lanes;
  } while ((block->warps[thread / kWarpSize].runnable >> thread % kWarpSize & 1) == 0);
  return &block->lanes[thread];
}

bool has_company(const Block* block) {
  return block->cluster != nullptr && block->cluster->size() > 1;
}

}  // namespace

bool resume_waiting(Block* block) {
  if (block->sm90 == nullptr) return false;
  while (block->sm90->make_progress()) {
    if (block->runnable_warps != 0) return true;
  }
  return false;
}

void fail_endless_loop(Lane* lane, u32 site) {
  fail(lane, ErrorKind::kEndlessLoop, site,
       "the thread has taken more backward branches than the launch allows: an endless loop?");
}

void start_lane(Lane* lane, u8* stack, u64 stack_bytes) {
  prepare_context(lane->context, stack, stack_bytes, &fiber_main, lane);
}

void start_block(Block* block, const u32 ctaid[3]) {
  std::copy_n(ctaid, 3, block->position.ctaid);
  memset(block->barriers, 0, sizeof block->barriers);
  block->runnable_warps = 0;
  block->alive = block->n_threads;
  block->paused = nullptr;
  for (u32 index = 0; index < block->n_warps; ++index) reset_warp(block, index);
}

void pause_block(Lane* lane) {
  lane->block->paused = lane;
  switch_context(lane->context, lane->block->scheduler);
}

bool run_block(Block* block) {
  do {
    switch_context(block->scheduler,
                   (block->paused ? behind(block->paused) : first(block))->context);
    if (block->error.kind == ErrorKind::kNone && block->paused != nullptr) return false;
    if (block->error.kind != ErrorKind::kNone || block->alive == 0) break;
    if (has_company(block)) return false;
  } while (resume_waiting(block));
  if (block->sm90 != nullptr && block->error.kind == ErrorKind::kNone && block->alive == 0) {
    block->sm90->finish_block();
  }
  if (block->error.kind == ErrorKind::kNone && block->alive != 0) report_deadlock(block);
  return true;
}

}  // namespace emulator
