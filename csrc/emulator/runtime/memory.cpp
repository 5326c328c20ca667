#include "memory.h"

#include <algorithm>

#include "block.h"

namespace emulator {

namespace {

const char* verb(Access access) {
  static constexpr const char* kVerbs[] = {"read", "write", "atomic update", "copy",
                                           "read", "write", "reduction"};
  return kVerbs[u32(access)];
}

using ull = unsigned long long;

[[noreturn]] void fail_misaligned(Lane* lane, const char* space, u64 address, u32 bytes,
                                  Access access, u32 site) {
  fail(lane, ErrorKind::kMisaligned, site,
       "%s %s of %u bytes at address 0x%llx, which is not a multiple of %u", space, verb(access),
       bytes, ull(address), bytes);
}

}  // namespace

void fail_window(Lane* lane, const char* space, s64 offset, u32 window, u32 bytes, Access access,
                 u32 site) {
  if (offset % bytes != 0) fail_misaligned(lane, space, u64(offset), bytes, access, site);
  fail(lane, ErrorKind::kOutOfBounds, site,
       "%s %s of %u bytes at byte %lld of %u bytes of %s memory", space, verb(access), bytes,
       static_cast<long long>(offset), window, space);
}

void find_range(Lane* lane, u64 address, u32 bytes, Access access, u32 site) {
  if (lane->awaits_grids) {
    fail(lane, ErrorKind::kEarlyAccess, site,
         "global %s before griddepcontrol.wait: kernels before this one may still run",
         verb(access));
  }
  const RangeTable& table = lane->block->ranges;
  const GlobalRange* end = table.ranges + table.count;
  const GlobalRange* next =
      std::upper_bound(table.ranges, end, address,
                       [](u64 value, const GlobalRange& range) { return value < range.begin; });
  const GlobalRange* before = next == table.ranges ? nullptr : next - 1;
  if (before == nullptr || !range_allows(before, address, bytes, Access::kRead)) {
    fail(lane, ErrorKind::kOutOfBounds, site, "global %s of %u bytes at 0x%llx{outside:%llu}",
         verb(access), bytes, ull(address), ull(address));
  }
  if (writes(access) && !before->writable) {
    fail(lane, ErrorKind::kReadOnly, site,
         "global %s of %u bytes at byte %llu of {range:%u}, which is read-only", verb(access),
         bytes, ull(address - before->begin), before->index);
  }
  if (address % bytes != 0) fail_misaligned(lane, "global", address, bytes, access, site);
  lane->recent_range = before;
}

}  // namespace emulator
