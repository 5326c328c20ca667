// st.async: words that a thread stores in the shared memory of a block of its cluster.
#include <string.h>

#include "bulk_copies.h"
#include "race_report.h"
#include "sm90.h"

namespace emulator {

// A lane of another block knows nothing of what threads here did: only a word that nobody has
// touched may be stored to, and once.
void BulkCopies::store_word(Lane* lane, u32 address, const u8* value, u32 bytes,
                            u32 barrier_address, u32 site) {
  Sm90* sm90 = block_->sm90;
  const u32 offset = shared_offset(lane, *sm90, address, bytes, bytes, Access::kAsyncWrite, site);
  const bool own = lane->block == block_;
  Mbarriers& barriers = sm90->mbarriers;
  Mbarrier& barrier = own ? barriers.use(lane, barrier_address, site)
                          : barriers.use_from_afar(lane, block_, barrier_address, site);
  u32 operation = 0;
  if (sm90->shadow.tracked()) {
    operation = sm90->shadow.begin(
        {AsyncKind::kBulkLoad, barrier.agent, AsyncOperation::kNever, thread_of(lane), site});
    Races& races = *block_->races;
    Lane stranger = *lane;
    if (!own) stranger.seen = races.make();
    const u32 first = offset / 16 * 16;  // as the shadow counts
    sm90->shadow.write(operation, Observers(&stranger), first, 16);
    if (!own) races.drop(stranger.seen);
  }
  u8* place = block_->lanes->shared + offset;
  memset(place, 0xFF, bytes);
  Load load{{}, {}, offset, &barrier, operation, site, block_->lanes, bytes, {}};
  memcpy(load.word, value, bytes);
  in_flight_.push_back(load);
  block_->counts.bulk_stores += 1;
  land_if_early(lane);
  Schedule& schedule = lane->block->schedule;
  if (schedule.order == Order::kRandom && schedule.random(4) == 0) land_one(block_);
}

}  // namespace emulator
