// wgmma and its fences, commits and waits, as translated kernels call them.
#include <string.h>

#include "collective.h"
#include "sm90.h"

namespace emulator {

namespace {

void execute_now(Warp* warp, u32) { warp->block->sm90->warpgroups.execute(warp); }
void execute_committed(Warp* warp, u32) { warp->block->sm90->warpgroups.commit(warp); }

void do_nothing(Warp*, u32) {}

// What the lanes of a warp must agree on, beside 0 and 1 of commit and execute.
constexpr u32 kFenceKey = 2, kWaitKey = 3;

// `.sync.aligned`: all lanes of the warp execute the instruction.
void together(Lane* lane, u32 key, u32 site) {
  require_full_warp(lane, Wait::kWgmma, site);
  meet(lane, Wait::kWgmma, key, ~0u, site, nullptr, &do_nothing, SameSite::kRequired);
}

WgmmaQueue& queue_of(Lane* lane) { return lane->block->sm90->warpgroups.queue(lane); }

}  // namespace

void wgmma(Lane* lane, const WgmmaForm& form, f32* d, const void* a, u64 b, bool accumulates,
           u32 site) {
  require_full_warp(lane, Wait::kWgmma, site);
  if (lane->block->n_threads < (lane->warp_id / 4 + 1) * 128) {
    fail(lane, ErrorKind::kDivergentCollective, site,
         "wgmma by warp %u: its warpgroup lacks warps, the thread block has %u threads",
         lane->warp_id, lane->block->n_threads);
  }
  Wgmma item{form, d, {}, 0, b, accumulates, site};
  if (form.a_in_registers) {
    memcpy(item.a, a, sizeof item.a);
  } else {
    memcpy(&item.a_descriptor, a, sizeof item.a_descriptor);
  }
  if (lane->lane_id == 0) lane->block->sm90->warpgroups.track_issue(lane, item);
  queue_of(lane).uncommitted.push_back(item);
}

void wgmma_fence(Lane* lane, u32 site) {
  together(lane, kFenceKey, site);
  queue_of(lane).fences += 1;
}

void wgmma_execute(Lane* lane, u32 site) {
  lane->wait_site = site;
  meet(lane, Wait::kWgmma, 1, ~0u, site, nullptr, &execute_now, SameSite::kRequired);
  queue_of(lane).uncommitted.clear();
}

void wgmma_commit_group(Lane* lane, u32 site) {
  require_full_warp(lane, Wait::kWgmma, site);
  lane->wait_site = site;
  meet(lane, Wait::kWgmma, 0, ~0u, site, nullptr, &execute_committed, SameSite::kRequired);
  WgmmaQueue& own = queue_of(lane);
  own.uncommitted.clear();
  own.commits += 1;
  lane->block->sm90->warpgroups.meet(lane, site);
}

void wgmma_wait_group(Lane* lane, u32 pending_groups, u32 site) {
  together(lane, kWaitKey + pending_groups, site);
  lane->block->sm90->warpgroups.wait(lane, pending_groups, site);
}

void wgmma_note(Lane* lane, u32 slot) {
  WgmmaQueue& own = queue_of(lane);
  if (slot >= own.notes.size()) own.notes.resize(slot + 1, {0, ~0u});
  own.notes[slot] = {own.commits + 1, own.fences};
}

void wgmma_check_done(Lane* lane, u32 slot, u32 wgmma_site, const char* registers, u32 site) {
  const WgmmaQueue& own = queue_of(lane);
  if (slot >= own.notes.size() || own.notes[slot].group <= own.waited) return;
  fail(
      lane, ErrorKind::kWgmma, site,
      "touches %s while the wgmma at {site:%u} is in flight: a wgmma.wait_group is missing between "
      "the two",
      registers, wgmma_site);
}

void wgmma_check_fenced(Lane* lane, u32 slot, u32 access_site, const char* registers, u32 site) {
  const WgmmaQueue& own = queue_of(lane);
  if (slot >= own.notes.size() || own.notes[slot].fences != own.fences) return;
  if (access_site == 0) {
    fail(lane, ErrorKind::kWgmma, site, "no wgmma.fence precedes the thread's first wgmma");
  }
  fail(lane, ErrorKind::kWgmma, site,
       "uses %s, which the thread has touched at {site:%u}: a wgmma.fence is missing between the "
       "two",
       registers, access_site);
}

}  // namespace emulator
