// The race detector's shadow of global memory, shared by all workers.
#include <stdlib.h>
#include <sys/mman.h>

#include "block.h"
#include "block_order.h"
#include "kernel_info.h"
#include "race.h"

namespace emulator {

// Zero pages, of which only those that are touched cost memory.
Cells map_cells(u64 count, u32 slots) {
  Cells cells{nullptr, count, count * slots * sizeof(Record)};
  if (count == 0) return cells;
  void* memory = mmap(nullptr, cells.bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) abort();
  cells.records = static_cast<Record*>(memory);
  return cells;
}

void unmap_cells(const Cells& cells) {
  if (cells.records != nullptr) munmap(cells.records, cells.bytes);
}

GlobalShadow::GlobalShadow(const KernelInfo& kernel, const GlobalRange* table, u32 count)
    : granule_log2(u32(__builtin_ctz(kernel.smallest_access))),
      atomics(kernel.uses_global_atomics != 0 || kernel.orders_blocks != 0),
      order(kernel.orders_blocks ? std::make_unique<BlockOrder>() : nullptr),
      locks{} {
  for (const GlobalRange* range = table; range != table + count; ++range) {
    u64 first = range->begin >> granule_log2;
    u64 last = (range->begin + range->bytes - 1) >> granule_log2;
    ranges.push_back(map_cells(range->writable ? last - first + 1 : 0, kGlobalSlots));
  }
}

GlobalShadow::~GlobalShadow() {
  for (const Cells& cells : ranges) unmap_cells(cells);
}

LineLock::LineLock(GlobalShadow& shadow, u64 address)
    : lock_(&shadow.locks[address / kLineBytes % std::size(shadow.locks)]) {
  while (__atomic_test_and_set(lock_, __ATOMIC_ACQUIRE)) {
  }
}

LineLock::~LineLock() { __atomic_clear(lock_, __ATOMIC_RELEASE); }

GlobalCells global_cells(const Lane* lane, u64 address) {
  const GlobalShadow& shadow = *lane->block->races->global;
  const GlobalRange* range = lane->recent_range;
  const u32 granule = shadow.granule_log2;
  return {shadow.ranges[u64(range - lane->block->ranges.ranges)],
          (address >> granule) - (range->begin >> granule)};
}

void global_writes(const Lane* lane, u64 address, u32 bytes, std::vector<GlobalWrite>& writes) {
  const u32 granule = lane->block->races->global->granule_log2;
  for_each_line(address, bytes, [&](u64 line, u32 n_bytes) {
    const LineLock lock(*lane->block->races->global, line);
    const auto [cells, first] = global_cells(lane, line);
    for (u32 slot = 0; slot < kGlobalSlots; ++slot) {
      const Record* before = nullptr;
      for (u32 index = 0; index << granule < n_bytes; ++index) {
        const Record& record = cells.slot(slot)[first + index];
        const bool writes_there = record.clock != 0 && (slot == 0 || record.update);
        if (writes_there && before != nullptr && *before == record) {
          writes.back().bytes += 1u << granule;
        } else if (writes_there) {
          writes.push_back({record, line + (index << granule), 1u << granule});
        }
        before = writes_there ? &record : nullptr;
      }
    }
  });
}

void land_bulk_write(const Lane* lane, u64 address, u32 bytes, u32 site) {
  const Races& races = *lane->block->races;
  const u32 granule = races.global->granule_log2;
  for_each_line(address, bytes, [&](u64 line, u32 n_bytes) {
    const LineLock lock(*races.global, line);
    const auto [cells, first] = global_cells(lane, line);
    for (u32 index = 0; index << granule < n_bytes; ++index) {
      for (u32 slot = 0; slot < kGlobalSlots; ++slot) {
        Record& write = cells.slot(slot)[first + index];
        const bool own = write.in_flight() && write.block == races.block &&
                         write.lanes == 1u << lane->lane_id && write.warp == lane->warp_id &&
                         write.site == site;
        if (own) write.clock = lane->clock;  // else overwritten meanwhile, and reported
      }
    }
  });
}

}  // namespace emulator
