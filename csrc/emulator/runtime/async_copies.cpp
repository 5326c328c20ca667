#include "async_copies.h"

#include <string.h>

#include "block.h"
#include "device_calls.h"
#include "errors.h"
#include "memory.h"
#include "race.h"

namespace emulator {

namespace {

// Lands all copies of the groups before `group`.
void land_groups_before(Lane* lane, u32 group) {
  AsyncCopies* copies = lane->copies;
  std::vector<AsyncCopy>& queue = copies->queue;
  for (; copies->landed < queue.size() && queue[copies->landed].group < group; ++copies->landed) {
    const AsyncCopy& copy = queue[copies->landed];
    if (copy.source_bytes != 0) memcpy(copy.destination, copy.source, copy.source_bytes);
    memset(copy.destination + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
    if (lane->block->races != nullptr) land_async_write(lane, copy);
  }
  constexpr u32 kTrim = 256;  // a pipeline never drains, so its queue is cut now and then
  if (copies->landed == queue.size() || copies->landed >= kTrim) {
    queue.erase(queue.begin(), queue.begin() + copies->landed);
    copies->landed = 0;
  }
}

template <u32 kBytes>
void issue(Lane* lane, u32 destination, u64 source, u32 source_bytes, u32 site) {
  u8* target = shared_pointer<kBytes>(lane, destination, Access::kAsyncWrite, site);
  const u8* origin = nullptr;
  if (source_bytes == kBytes) {
    origin = global_pointer<kBytes>(lane, source, Access::kRead, site);
  } else if (source_bytes != 0) {
    // A partial copy reads only source_bytes, but the address must be aligned for the whole.
    if (source % kBytes != 0 || source_bytes > kBytes) {
      fail(lane, ErrorKind::kInvalidOperand, site,
           "cp.async of %u bytes with %u source bytes from address 0x%llx", kBytes, source_bytes,
           static_cast<unsigned long long>(source));
    }
    for (u32 byte = 0; byte < source_bytes; ++byte) {
      origin = global_pointer<1>(lane, source + byte, Access::kRead, site) - byte;
    }
  }
  memset(target, 0xFF, kBytes);
  AsyncCopies* copies = lane->copies;
  bool watched = source_bytes != 0 && lane->recent_range->writable;
  copies->queue.push_back({target, origin, kBytes, source_bytes, copies->commits, site,
                           watched ? lane->recent_range : nullptr});
  lane->block->counts.async_copies += 1;
}

}  // namespace

void cp_async(Lane* lane, u32 bytes, u32 destination, u64 source, u32 source_bytes, u32 site) {
  switch (bytes) {
    case 4:
      return issue<4>(lane, destination, source, source_bytes, site);
    case 8:
      return issue<8>(lane, destination, source, source_bytes, site);
    default:
      return issue<16>(lane, destination, source, source_bytes, site);
  }
}

void cp_async_commit(Lane* lane) { lane->copies->commits += 1; }

void cp_async_wait_group(Lane* lane, u32 pending_groups) {
  u32 commits = lane->copies->commits;
  if (commits > pending_groups) land_groups_before(lane, commits - pending_groups);
}

void cp_async_wait_all(Lane* lane) {
  cp_async_commit(lane);
  cp_async_wait_group(lane, 0);
}

}  // namespace emulator
