#include "memory.h"

#include <algorithm>

#include "block.h"

namespace emulator {

namespace {

const char* verb(Access access) {
  static constexpr const char* kVerbs[] = {"read", "write", "atomic update", "copy"};
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

void fail_shared(Lane* lane, u32 address, u32 bytes, Access access, u32 site) {
  if (address % bytes != 0) {
    fail_misaligned(lane, "shared", address - kSharedBase, bytes, access, site);
  }
  fail(lane, ErrorKind::kOutOfBounds, site,
       "shared %s of %u bytes at byte %lld of %u bytes of shared memory", verb(access), bytes,
       static_cast<long long>(address) - kSharedBase, lane->shared_bytes);
}

void fail_local(Lane* lane, u32 address, u32 bytes, Access access, u32 site) {
  if (address % bytes != 0) {
    fail_misaligned(lane, "local", address - kLocalBase, bytes, access, site);
  }
  fail(lane, ErrorKind::kOutOfBounds, site,
       "local %s of %u bytes at byte %lld of %u bytes of local memory", verb(access), bytes,
       static_cast<long long>(address) - kLocalBase, lane->local_bytes);
}

void find_range(Lane* lane, u64 address, u32 bytes, Access access, u32 site) {
  const RangeTable& table = lane->block->ranges;
  const GlobalRange* end = table.ranges + table.count;
  const GlobalRange* next =
      std::upper_bound(table.ranges, end, address,
                       [](u64 value, const GlobalRange& range) { return value < range.begin; });
  const GlobalRange* before = next == table.ranges ? nullptr : next - 1;
  if (before == nullptr || !range_allows(before, address, bytes, Access::kRead)) {
    // Name the nearest range: an address shortly before or behind one is an index error there.
    u64 behind = before ? address - (before->begin + before->bytes) : ~u64{0};
    u64 ahead = next != end ? next->begin - address : ~u64{0};
    if (before && address < before->begin + before->bytes) {
      fail(lane, ErrorKind::kOutOfBounds, site,
           "global %s of %u bytes at 0x%llx crosses the end of {range:%u}", verb(access), bytes,
           ull(address), before->index);
    }
    if (behind == ~u64{0} && ahead == ~u64{0}) {
      fail(lane, ErrorKind::kOutOfBounds, site,
           "global %s of %u bytes at 0x%llx: no memory is registered", verb(access), bytes,
           ull(address));
    }
    bool is_behind = behind <= ahead;
    fail(lane, ErrorKind::kOutOfBounds, site,
         "global %s of %u bytes at 0x%llx, in no registered memory: %llu bytes %s of {range:%u}",
         verb(access), bytes, ull(address), ull(is_behind ? behind : ahead),
         is_behind ? "behind the end" : "before the start",
         is_behind ? before->index : next->index);
  }
  if (access != Access::kRead && !before->writable) {
    fail(lane, ErrorKind::kReadOnly, site,
         "global %s of %u bytes at byte %llu of {range:%u}, which is read-only", verb(access),
         bytes, ull(address - before->begin), before->index);
  }
  if (address % bytes != 0) fail_misaligned(lane, "global", address, bytes, access, site);
  lane->recent_range = before;
}

}  // namespace emulator
