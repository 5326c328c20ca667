// bar.sync, bar.arrive, bar.red and their unaligned `barrier` forms.
#include "block.h"
#include "device_calls.h"
#include "errors.h"
#include "race.h"
#include "traffic.h"

namespace emulator {

namespace {

u32 expected_threads(const Block* block, const Barrier& barrier) {
  return barrier.expected != kWholeBlock ? barrier.expected : block->alive;
}

void complete(Block* block, Barrier& barrier) {
  if (block->races != nullptr) block->races->meet(barrier);
  for_each_waiting(block, barrier, [&](Lane& lane) {
    if (lane.operands != nullptr) *static_cast<Ballot*>(lane.operands) = barrier.ballots;
  });
  for (u32 index = 0; index < block->n_warps; ++index) {
    u32 lanes = barrier.waiting[index];
    if (lanes == 0) continue;
    Warp* warp = &block->warps[index];
    warp->at_aligned_barrier &= ~lanes;
    make_runnable(warp, lanes);
    Traffic* traffic = warp->lanes->traffic;
    if (traffic && lanes == warp->alive) traffic->flush(*warp);
  }
  block->counts.collectives[u32(Wait::kBlockBarrier)] += 1;
  barrier = Barrier{};
}

Barrier& checked_barrier(Lane* lane, u32 number, u32 threads, u32 site) {
  if (number >= kMaxBarriers || threads % kWarpSize != 0) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "barrier %u with %u threads: there are barriers 0 to %u, and thread counts are multiples "
         "of 32",
         number, threads, kMaxBarriers - 1);
  }
  Barrier& barrier = lane->block->barriers[number];
  if (barrier.arrived != 0 && barrier.expected != threads) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "barrier %u with %u threads, while %u threads wait there for %u (0: the whole block)",
         number, threads, barrier.arrived, barrier.expected);
  }
  barrier.expected = threads;
  return barrier;
}

// `bar` is `barrier.aligned`: all threads of a warp must execute the same instruction.
void check_aligned(Lane* lane, u32 number, u32 site) {
  Warp* warp = lane->warp;
  if (warp->alive != warp->existing) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "the thread is at bar.sync %u, but lanes 0x%08x of its warp have exited", number,
         warp->existing & ~warp->alive);
  }
  if (warp->at_aligned_barrier == 0) return;
  const Lane& other = warp->lanes[__builtin_ctz(warp->at_aligned_barrier)];
  if (other.wait_site == site && other.wait_detail == number) return;
  fail(lane, ErrorKind::kDivergentCollective, site,
       "the thread is at bar.sync %u, while lanes 0x%08x of its warp are at bar.sync %u at "
       "{site:%u}",
       number, warp->at_aligned_barrier, other.wait_detail, other.wait_site);
}

}  // namespace

void complete_barriers(Block* block) {
  for (Barrier& barrier : block->barriers) {
    if (barrier.arrived != 0 && barrier.arrived == expected_threads(block, barrier)) {
      complete(block, barrier);
    }
  }
}

void barrier_sync(Lane* lane, Alignment alignment, u32 number, u32 threads, u32 site, Ballot* own) {
  if (alignment == Alignment::kAligned) check_aligned(lane, number, site);
  Barrier& barrier = checked_barrier(lane, number, threads, site);
  Warp* warp = lane->warp;
  u32 self = 1u << lane->lane_id;
  lane->operands = own;
  lane->wait = Wait::kBlockBarrier;
  lane->wait_site = site;
  lane->wait_detail = number;
  if (alignment == Alignment::kAligned) warp->at_aligned_barrier |= self;
  if (own != nullptr) {
    barrier.ballots.predicate += own->predicate;
    barrier.ballots.threads += own->threads;
  }
  barrier.waiting[warp->index] |= self;
  barrier.arrived += 1;
  Block* block = lane->block;
  if (barrier.arrived != expected_threads(block, barrier)) return wait(lane);
  complete(block, barrier);
  continue_in_order(lane, &block->warps[block->schedule.pick(block->runnable_warps)]);
}

void barrier_arrive(Lane* lane, u32 number, u32 threads, u32 site) {
  Barrier& barrier = checked_barrier(lane, number, threads, site);
  barrier.arrived += 1;
  if (Races* races = lane->block->races) {
    if (barrier.released == nullptr) barrier.released = races->make();
    races->join(barrier.released, *lane);
    lane->clock += 1;
    lane->barrier_site = site;
  }
  if (barrier.arrived == expected_threads(lane->block, barrier)) complete(lane->block, barrier);
}

}  // namespace emulator
