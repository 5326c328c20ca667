#include "collective.h"

#include "errors.h"

namespace emulator {

void fail_divergent(Lane* lane, Wait kind, u32 mask, u32 site) {
  Warp* warp = lane->warp;
  for (u32 lanes = warp->claimed; lanes != 0; lanes &= lanes - 1) {
    const PendingCollective& other = warp->pending[__builtin_ctz(lanes)];
    if ((other.mask & mask) == 0) continue;
    fail(lane, ErrorKind::kDivergentCollective, site,
         "the thread is at %s with mask 0x%08x, while lanes 0x%08x of its warp are at %s with mask "
         "0x%08x at {site:%u}",
         wait_name(kind), mask, other.arrived, wait_name(other.kind), other.mask, other.site);
  }
  fail(lane, ErrorKind::kDivergentCollective, site,
       "the thread is at %s with mask 0x%08x, which other lanes of its warp do not share",
       wait_name(kind), mask);
}

void fail_not_in_mask(Lane* lane, Wait kind, u32 mask, u32 site) {
  fail(lane, ErrorKind::kDivergentCollective, site,
       "the thread executes %s with mask 0x%08x, which does not contain its own lane %u",
       wait_name(kind), mask, lane->lane_id);
}

void require_full_warp(Lane* lane, Wait kind, u32 site) {
  if (lane->warp->alive == ~0u) return;
  fail(lane, ErrorKind::kDivergentCollective, site,
       "%s needs all 32 lanes of the warp, but only lanes 0x%08x exist and have not exited",
       wait_name(kind), lane->warp->alive);
}

void leave_collectives(Lane* lane) {
  Warp* warp = lane->warp;
  if ((warp->claimed >> lane->lane_id & 1) == 0) return;
  for (PendingCollective& pending : warp->pending) {
    if ((pending.mask >> lane->lane_id & 1) == 0) continue;
    if (pending.kind == Wait::kMma || pending.kind == Wait::kLdmatrix ||
        pending.kind == Wait::kStmatrix || pending.kind == Wait::kWgmma) {
      fail(lane, ErrorKind::kDivergentCollective, pending.site,
           "the thread exits while lanes 0x%08x of its warp wait for it at %s", pending.arrived,
           wait_name(pending.kind));
    }
    if (pending.arrived == (pending.mask & warp->alive)) {
      complete_collective(warp, pending);
      return;
    }
  }
}

}  // namespace emulator
