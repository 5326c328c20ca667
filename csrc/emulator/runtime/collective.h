// Bringing the lanes of a warp together for one instruction.
#pragma once

#include "block.h"
#include "lane.h"
#include "types.h"

namespace emulator {

// How a collective treats lanes that arrive from different instructions.
enum class SameSite : bool { kNotRequired, kRequired };

[[noreturn, gnu::cold]] void fail_divergent(Lane* lane, Wait kind, u32 mask, u32 site);
[[noreturn, gnu::cold]] void fail_not_in_mask(Lane* lane, Wait kind, u32 mask, u32 site);

// Finishes a collective: the operands of `lanes` are exchanged and all of them may run again.
inline void complete_collective(Warp* warp, PendingCollective& pending) {
  u32 lanes = pending.arrived;
  warp->claimed &= ~pending.mask;
  pending.mask = 0;
  warp->block->counts.collectives[u32(pending.kind)] += 1;
  pending.execute(warp, lanes);
  make_runnable(warp, lanes);
}

// Returns when all lanes of `mask` that have not exited are here and `execute` has run for all of
// them. The last lane to arrive runs it.
inline void meet(Lane* lane, Wait kind, u32 variant, u32 mask, u32 site, void* operands,
                 PendingCollective::Execute execute, SameSite same_site) {
  Warp* warp = lane->warp;
  u32 self = 1u << lane->lane_id;
  if (EMULATOR_UNLIKELY((mask & self) == 0)) fail_not_in_mask(lane, kind, mask, site);
  mask &= warp->existing;
  PendingCollective& pending = warp->pending[__builtin_ctz(mask)];
  if ((warp->claimed & mask) == 0) {
    pending = {kind, site, variant, mask, 0, execute};
    warp->claimed |= mask;
  } else if (EMULATOR_UNLIKELY(pending.mask != mask || pending.kind != kind ||
                               pending.variant != variant ||
                               (same_site == SameSite::kRequired && pending.site != site))) {
    fail_divergent(lane, kind, mask, site);
  }
  lane->operands = operands;
  pending.arrived |= self;
  if (pending.arrived == (mask & warp->alive)) {
    complete_collective(warp, pending);
    return continue_in_order(lane, warp);
  }
  lane->wait = kind;
  lane->wait_site = site;
  lane->wait_detail = mask;
  wait(lane);
}

// The warp-wide `.aligned` instructions: all 32 lanes must be there.
void require_full_warp(Lane* lane, Wait kind, u32 site);

// Called when a lane exits: a collective that waited only for it completes.
void leave_collectives(Lane* lane);

}  // namespace emulator
