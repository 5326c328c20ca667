#include "register_pool.h"

#include <algorithm>

#include "collective.h"
#include "sm90.h"

namespace emulator {

// A kernel with setmaxnreg has a known register count at its start: ptxas gives each thread its
// share of the SM, in steps of 8. The pool is what the block was given and its warps give back (PTX
// ISA, setmaxnreg): what the division leaves over belongs to nobody.
void RegisterPool::start_block(u32 n_threads) {
  const u32 share = std::min(kAll / std::max(n_threads, 1u) / 8 * 8, 256u);
  free_ = 0;
  std::fill(of_warp_, of_warp_ + kMaxWarps, share);
  std::fill(waiting_, waiting_ + kMaxWarps, 0);
}

void RegisterPool::change(Lane* lane, Registers change, u32 count, u32 site) {
  u32& own = of_warp_[lane->warp_id];
  if (count % 8 != 0 || count < 24 || count > 256) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "setmaxnreg %u: multiples of 8 from 24 to 256 are allowed", count);
  }
  if (change == Registers::kIncrease ? count < own : count > own) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "setmaxnreg.%s to %u registers, of %u that the thread has",
         change == Registers::kIncrease ? "inc" : "dec", count, own);
  }
  while (count > own && (count - own) * kWarpSize > free_) {
    lane->wait = Wait::kSetmaxnreg;
    lane->wait_site = site;
    lane->wait_detail = (count - own) * kWarpSize;
    waiting_[lane->warp_id] |= 1u << lane->lane_id;
    wait(lane);
  }
  if (count == own) return;  // another lane of the warp has done it
  free_ += (own - count) * kWarpSize;
  own = count;
  for (u32 warp = 0; warp < lane->block->n_warps; ++warp) {
    if (waiting_[warp] == 0) continue;
    make_runnable(&lane->block->warps[warp], waiting_[warp]);
    waiting_[warp] = 0;
  }
}

namespace {

void execute(Warp*, u32) {}

}  // namespace

void setmaxnreg(Lane* lane, Registers change, u32 count, u32 site) {
  require_full_warp(lane, Wait::kSetmaxnreg, site);
  meet(lane, Wait::kSetmaxnreg, count * 2 + u32(change), ~0u, site, nullptr, &execute,
       SameSite::kRequired);
  lane->block->sm90->registers.change(lane, change, count, site);
}

}  // namespace emulator
