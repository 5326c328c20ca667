#include "global_async.h"

#include <algorithm>

#include "block.h"
#include "race_report.h"

namespace emulator {

void GlobalAsync::start_block(Races* races) {
  races_ = races;
  loads_.clear();
  fences_.start_block();
}

void GlobalAsync::check_fences(Lane* lane, u64 address, u32 bytes, u32 site) {
  const Observers observers(lane);
  races_->access += 1;
  writes_.clear();
  global_writes(lane, address, bytes, writes_);
  for (const GlobalWrite& write : writes_) {
    const Record& record = write.record;
    if (record.block != races_->block || record.bulk) continue;
    if (!races_->is_ordered_in_block(lane, record)) continue;  // reported as such
    if (fences_.cover(record, observers)) continue;
    const u32 thread = record.warp * kWarpSize + u32(__builtin_ctz(record.lanes));
    report_race(*races_, lane, site, RaceKind::kNoProxyFence, {thread, record.site}, write.address,
                write.bytes, Memory::kGlobal);
  }
}

// Calls visit(unit, bits of its bytes).
template <typename Visit>
void GlobalAsync::for_each_unit(u64 address, u32 bytes, Visit visit) {
  for (const u64 end = address + bytes; address < end;) {
    const u64 unit = address / kUnitBytes;
    const u64 next = std::min(end, (unit + 1) * kUnitBytes);
    visit(unit, ((1u << (next - address)) - 1) << address % kUnitBytes);
    address = next;
  }
}

void GlobalAsync::keep_load(Lane* lane, u32 id, u64 address, u32 bytes) {
  for_each_unit(address, bytes, [&](u64 unit, u32 bits) {
    std::vector<Load>& loads = loads_[unit];
    std::erase_if(loads, [&](const Load& other) { return shadow_.is_over_for(other.id, lane); });
    loads.push_back({id, bits});
  });
}

void GlobalAsync::write(Lane* lane, u64 address, u32 bytes, u32 site) {
  if (loads_.empty()) return;
  races_->access += 1;
  for_each_unit(address, bytes, [&](u64 unit, u32 bits) {
    const auto loads = loads_.find(unit);
    if (loads == loads_.end()) return;
    for (const Load& load : loads->second) {
      if ((load.bytes & bits) == 0 || shadow_.is_over_for(load.id, lane)) continue;
      const AsyncOperation& first = shadow_.known(load.id);
      report_race(*races_, lane, site, RaceKind::kWriteToLoadSource, {first.thread, first.site},
                  unit * kUnitBytes, kUnitBytes, Memory::kGlobal);
    }
  });
}

}  // namespace emulator
