#include "async_shadow.h"

#include <algorithm>

#include "block.h"
#include "race_report.h"

namespace emulator {

AsyncShadow::AsyncShadow(Knowledge& knowledge, u32 shared_bytes, u32 n_warps)
    : knowledge_(knowledge),
      columns_(kFirstGroup + (n_warps + 3) / 4),
      fences_(n_warps * kWarpSize) {
  if (!knowledge.tracked()) return;
  cells_.resize(u64{shared_bytes / kCellBytes + 1} * columns_);
}

void AsyncShadow::start_block(Races* races) {
  races_ = races;
  first_id_ = next_id_;  // older ones in the cells mean nothing
  operations_.clear();
  other_stores_.clear();
  fences_.start_block();
}

u32 AsyncShadow::begin(const AsyncOperation& operation) {
  judged_ = 0;
  operations_.push_back(operation);
  return next_id_++;
}

bool AsyncShadow::is_over(u32 id, const Observers& observers) {
  if (id == judged_) return judged_over_;
  const AsyncOperation& other = operation(id);
  judged_ = id;
  judged_over_ =
      other.tick != AsyncOperation::kNever &&
      std::all_of(observers.seen, observers.seen + observers.distinct, [&](const Seen* seen) {
        return knowledge_.knows(seen, other.agent, other.tick);
      });
  return judged_over_;
}

void AsyncShadow::report(u32 id, RaceKind kind, const Lane* lane, u32 site, u32 offset) {
  const AsyncOperation& first = operation(id);
  report_race(*races_, lane, site, kind, {first.thread, first.site, first.by}, offset, kCellBytes);
}

namespace {

RaceKind kind_of_overwriting(AsyncKind reader) {
  if (reader == AsyncKind::kWgmma) return RaceKind::kWriteToWgmmaSource;
  return reader == AsyncKind::kCopyOut ? RaceKind::kWriteToCopySource
                                       : RaceKind::kWriteToStoreSource;
}

}  // namespace

// Before store `id` takes its place: the cell's last store, if nothing says that it is over.
void AsyncShadow::keep_store(const u32* cell, u32 id, const Observers& observers, u32 offset) {
  const u32 last = cell[kStore];
  if (!exists(last) || operation(last).agent == operation(id).agent || is_over(last, observers)) {
    return;
  }
  other_stores_[offset].push_back(last);
}

// Who still reads what is about to be overwritten?
void AsyncShadow::check_reads(u32 id, const u32* cell, const Observers& observers, u32 site,
                              u32 offset) {
  for (u32 column = kStore; column < columns_; ++column) {
    u32 reader = cell[column];
    if (reader == id || !exists(reader) || is_over(reader, observers)) continue;
    report(reader, kind_of_overwriting(operation(reader).kind), observers.lanes[0], site, offset);
  }
  if (other_stores_.empty()) return;
  const auto others = other_stores_.find(offset);
  if (others == other_stores_.end()) return;
  for (u32 reader : others->second) {
    if (is_over(reader, observers)) continue;
    report(reader, kind_of_overwriting(operation(reader).kind), observers.lanes[0], site, offset);
  }
}

void AsyncShadow::write(u32 id, const Observers& observers, u32 offset, u32 bytes) {
  judged_ = 0;
  races_->access += 1;
  const u32 site = operation(id).site;
  for (u32 end = offset + bytes; offset < end; offset += kCellBytes) {
    u32* own = cell(offset);
    if (exists(own[kWrite]) && !is_over(own[kWrite], observers)) {
      report(own[kWrite], RaceKind::kWriteToLoad, observers.lanes[0], site, offset);
    }
    check_reads(id, own, observers, site, offset);
    if (own[kTouched] == races_->block) check_lanes(id, observers, offset, true);
    own[kTouched] = 0;
    own[kWrite] = id;
  }
}

void AsyncShadow::read(u32 id, const Observers& observers, u32 offset, u32 bytes) {
  races_->access += 1;
  const AsyncOperation& self = operation(id);
  const u32 column =
      self.kind == AsyncKind::kWgmma ? kFirstGroup + self.thread / (4 * kWarpSize) : u32{kStore};
  for (u32 end = offset + bytes; offset < end; offset += kCellBytes) {
    u32* own = cell(offset);
    if (column == kStore) keep_store(own, id, observers, offset);
    own[column] = id;
    bool copied = exists(own[kWrite]);
    if (copied && !is_over(own[kWrite], observers)) {
      report(own[kWrite], RaceKind::kReadOfLoad, observers.lanes[0], self.site, offset);
    }
    bool written = own[kTouched] == races_->block && check_lanes(id, observers, offset, false);
    if (!copied && !written) {
      report_race(*races_, observers.lanes[0], self.site, RaceKind::kReadUnwritten, {0, 0}, offset,
                  kCellBytes);
    }
  }
}

// The lanes' own accesses to one cell, atomic updates among the writes; returns whether plain ones
// wrote all of it.
bool AsyncShadow::check_lanes(u32 id, const Observers& observers, u32 offset, bool writes) {
  const u32 granule = races_->global->granule_log2;
  const u32 first = offset >> granule;
  const u32 count = kCellBytes >> granule;
  bool written = true;
  const bool others = writes || races_->atomics;  // beside the last plain write
  for (u32 slot = 0; slot < (others ? 1 + races_->n_warps : 1); ++slot) {
    const Record* last = nullptr;  // neighbours mostly have the same record
    for (u32 index = first; index < first + count; ++index) {
      const Record& record = races_->shared.slot(slot)[index];
      if (record.block != races_->block) {
        written &= slot != 0;
        continue;
      }
      if (record.clock == 0) continue;  // of a copy
      if (slot != 0 && !writes && !record.update) continue;
      if (last && last->clock == record.clock && last->lanes == record.lanes &&
          last->site == record.site && last->warp == record.warp) {
        continue;
      }
      last = &record;
      RaceKind kind = slot != 0 && !record.update ? RaceKind::kWriteAfterRead
                      : writes                    ? RaceKind::kWriteAfterWrite
                                                  : RaceKind::kReadAfterWrite;
      check_record(id, observers, record, kind, offset);
    }
  }
  return written;
}

void AsyncShadow::check_record(u32 id, const Observers& observers, const Record& record,
                               RaceKind kind, u32 offset) {
  const u32 site = operation(id).site;
  const u32 thread = record.warp * kWarpSize + u32(__builtin_ctz(record.lanes));
  bool ordered = true;
  for (u32 index = 0; ordered && index < observers.count; ++index) {
    ordered = races_->is_ordered_in_block(observers.lanes[index], record);
  }
  if (!ordered) {
    report_race(*races_, observers.lanes[0], site, kind, {thread, record.site}, offset, kCellBytes);
  } else if (kind != RaceKind::kWriteAfterRead && !fences_.cover(record, observers)) {
    report_race(*races_, observers.lanes[0], site, RaceKind::kNoProxyFence, {thread, record.site},
                offset, kCellBytes);
  }
}

bool AsyncShadow::is_over_for(u32 id, Lane* lane) {
  judged_ = 0;
  const bool over = is_over(id, Observers(lane));
  judged_ = 0;
  return over;
}

void AsyncShadow::lane_access(Lane* lane, u32 offset, u32 bytes, bool writes, u32 site) {
  const Observers observers(lane);
  judged_ = 0;
  const u32 end = offset + bytes;
  for (offset -= offset % kCellBytes; offset < end; offset += kCellBytes) {
    u32* own = cell(offset);
    own[kTouched] = races_->block;
    if (writes) check_reads(0, own, observers, site, offset);
    if (!exists(own[kWrite])) continue;
    if (!is_over(own[kWrite], observers)) {
      report(own[kWrite], writes ? RaceKind::kWriteToLoad : RaceKind::kReadOfLoad, lane, site,
             offset);
    }
    // For the detector's records the bytes are written; what orders them has been judged here.
    const u32 granule = races_->global->granule_log2;
    Record* record = races_->shared.slot(0) + (offset >> granule);
    for (Record* last = record + (kCellBytes >> granule); record != last; ++record) {
      if (record->block == races_->block) continue;
      *record = {0,
                 1u << (operation(own[kWrite]).thread % kWarpSize),
                 operation(own[kWrite]).site,
                 0,
                 0,
                 0,
                 operation(own[kWrite]).thread / kWarpSize,
                 races_->block};
    }
  }
}

}  // namespace emulator
