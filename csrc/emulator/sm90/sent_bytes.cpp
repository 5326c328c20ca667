// What threads bring to the shared memory of a block of their cluster: words (st.async), copies of
// their own block's, and loads for several blocks.
#include <string.h>

#include "bulk_copies.h"
#include "collective.h"
#include "race_report.h"
#include "sm90.h"

namespace emulator {

// Bytes are going to be written here until the barrier says so: the operation, in the async shadow.
u32 BulkCopies::begin_write(Lane* lane, const Mbarrier& barrier, u32 offset, u32 bytes, u32 site) {
  AsyncShadow& shadow = block_->sm90->shadow;
  const bool own = lane->block == block_;
  const u32 operation = shadow.begin({AsyncKind::kBulkLoad, barrier.agent, AsyncOperation::kNever,
                                      thread_of(lane), site, own ? nullptr : lane->block});
  Lane sender = *lane;
  if (!own) sender.seen = block_->races->view_of(*lane);
  shadow.write(operation, Observers(&sender, !own), offset, bytes);
  if (!own) block_->races->drop(sender.seen);
  return operation;
}

// Bytes that are going to land here, as the lane's block knows this one.
BulkCopies::Load BulkCopies::receive(Lane* lane, const Sent& sent) {
  constexpr u32 kUnit = 16;  // as the shadow counts
  Sm90* sm90 = block_->sm90;
  const u32 offset = shared_offset(lane, *sm90, sent.address, sent.bytes, sent.alignment,
                                   Access::kAsyncWrite, sent.site);
  Mbarrier& barrier = sm90->mbarriers.use_in(block_, lane, sent.barrier, sent.site);
  u32 operation = 0;
  if (sm90->shadow.tracked()) {
    const u32 first = offset / kUnit * kUnit;
    const u32 end = (offset + sent.bytes + kUnit - 1) / kUnit * kUnit;
    operation = begin_write(lane, barrier, first, end - first, sent.site);
  }
  memset(block_->lanes->shared + offset, 0xFF, sent.bytes);
  Load load{{}, {}, offset, &barrier, operation, sent.site, block_->lanes, sent.bytes, {}};
  if (lane->block != block_) load.sender = lane;
  return load;
}

void BulkCopies::send(Lane* lane, const Load& load) {
  in_flight_.push_back(load);
  block_->counts.bulk_stores += 1;
  land_if_early(lane);
  surprise_from_afar(lane);
}

void BulkCopies::surprise_from_afar(Lane* lane) {
  Schedule& schedule = lane->block->schedule;
  if (schedule.order == Order::kRandom && schedule.random(4) == 0) land_one(block_);
}

void BulkCopies::store_word(Lane* lane, const Sent& sent, const u8* value) {
  Load load = receive(lane, sent);
  memcpy(load.word, value, sent.bytes);
  send(lane, load);
}

// Its source is read until the barrier here has heard of all bytes: an agent of this block, which
// the sender counts behind its own.
void BulkCopies::copy_to_here(Lane* lane, const Sent& sent, u32 source) {
  Sm90* from = lane->block->sm90;
  const u32 offset =
      shared_offset(lane, *from, source, sent.bytes, sent.alignment, Access::kRead, sent.site);
  Load load = receive(lane, sent);
  load.from = lane->block;
  load.source = offset;
  if (from->shadow.tracked()) {
    const u32 agent = lane->block->races->ticks_of(block_->races->block) + load.barrier->agent;
    load.source_operation = from->shadow.begin(
        {AsyncKind::kCopyOut, agent, AsyncOperation::kNever, thread_of(lane), sent.site});
    from->shadow.read(load.source_operation, Observers(lane), offset, sent.bytes);
  }
  send(lane, load);
}

// Both blocks must hear of it before they end.
void BulkCopies::note_landing(const Load& load) const {
  const u32 tick = u32(load.barrier->phase) + 1;
  const Races& own = *block_->races;
  const u32 bytes = load.sent_bytes != 0 ? load.sent_bytes : load.map.box_bytes();
  const UsesFromAfar::Use use{tick, load.sender, load.site, load.destination, bytes};
  block_->sm90->uses.note(own.n_threads_padded() + load.barrier->agent, use);
  if (load.from == nullptr) return;
  Sm90* from = load.from->sm90;
  from->shadow.landed(load.source_operation, tick);
  const Races& other = *load.from->races;
  from->uses.note(other.n_threads_padded() + other.ticks_of(own.block) + load.barrier->agent,
                  {tick, load.sender, load.site, load.source, load.sent_bytes});
}

bool BulkCopies::report_copy_of(const Block* other) const {
  for (const Load& load : in_flight_) {
    if (load.from != other || load.sender == nullptr) continue;
    record_error(load.sender, ErrorKind::kPendingAsyncCopy, load.site,
                 "the thread block ends while a copy of %u bytes of its shared memory to another "
                 "block is in flight: it must hear from that one first",
                 load.sent_bytes);
    return true;
  }
  return false;
}

}  // namespace emulator
