// Every memory access of a kernel passes through one function per address space, which checks
// bounds, alignment and permission and yields a host pointer. Further checks hook in here.
//
// Addresses: shared is 32-bit from kSharedBase, local is an offset from kLocalBase in the thread's
// own array, global (with .const and .param) is the host address. A generic address carries its
// space in the top byte, which no host address uses.
#pragma once

#include "errors.h"
#include "lane.h"
#include "types.h"

namespace emulator {

inline constexpr u32 kSharedBase = 1024;  // aligned for 128-byte swizzles; address 0 is an error
inline constexpr u32 kLocalBase = 256;
inline constexpr u64 kSharedWindow = u64{1} << 56;
inline constexpr u64 kLocalWindow = u64{2} << 56;

// Strong ones, in global memory, are those through which blocks talk to each other: atomic, but
// for the order of what lies around them.
enum class Access : u32 {
  kRead,
  kWrite,
  kAtomic,
  kAsyncWrite,
  kStrongRead,
  kStrongWrite,
  kAsyncAtomic  // a bulk reduction's
};

constexpr bool writes(Access access) {
  return access != Access::kRead && access != Access::kStrongRead;
}
constexpr bool is_strong(Access access) {
  return access == Access::kAtomic || access == Access::kStrongRead ||
         access == Access::kStrongWrite;
}
constexpr bool is_atomic(Access access) {
  return is_strong(access) || access == Access::kAsyncAtomic;
}
// As shared and local memory see it.
constexpr Access plain(Access access) {
  if (access == Access::kStrongRead) return Access::kRead;
  return access == Access::kStrongWrite ? Access::kWrite : access;
}

// Of `window` bytes of shared or local memory.
[[noreturn, gnu::cold]] void fail_window(Lane* lane, const char* space, s64 offset, u32 window,
                                         u32 bytes, Access access, u32 site);
// What else happens before an access, as lane->watch says: the race detector's checks, a change to
// another lane under random schedules, and one to another block at strong accesses.
inline constexpr u32 kWatchRaces = 1;
inline constexpr u32 kWatchSchedule = 2;
inline constexpr u32 kWatchBlocks = 4;
void watch_shared(Lane* lane, u32 offset, u32 bytes, Access access, u32 site);
void watch_global(Lane* lane, u64 address, u32 bytes, Access access, u32 site);

// Looks the range up, or fails.
[[gnu::cold]] void find_range(Lane* lane, u64 address, u32 bytes, Access access, u32 site);

template <u32 kBytes>
inline u8* shared_pointer(Lane* lane, u32 address, Access access, u32 site) {
  u32 offset = address - kSharedBase;
  if (EMULATOR_UNLIKELY(u64{offset} + kBytes > lane->shared_bytes || address % kBytes != 0)) {
    fail_window(lane, "shared", s64{address} - kSharedBase, lane->shared_bytes, kBytes, access,
                site);
  }
  if (lane->watch != 0) watch_shared(lane, offset, kBytes, access, site);
  return lane->shared + offset;
}

template <u32 kBytes>
inline u8* local_pointer(Lane* lane, u64 address, Access access, u32 site) {
  u32 offset = u32(address) - kLocalBase;
  if (EMULATOR_UNLIKELY(u64{offset} + kBytes > lane->local_bytes || address % kBytes != 0)) {
    fail_window(lane, "local", s64{u32(address)} - kLocalBase, lane->local_bytes, kBytes, access,
                site);
  }
  return lane->local + offset;
}

inline bool range_allows(const GlobalRange* range, u64 address, u32 bytes, Access access) {
  u64 offset = address - range->begin;
  return offset < range->bytes && range->bytes - offset >= bytes &&
         (!writes(access) || range->writable);
}

template <u32 kBytes>
inline u8* global_pointer(Lane* lane, u64 address, Access access, u32 site) {
  if (EMULATOR_UNLIKELY(!range_allows(lane->recent_range, address, kBytes, access) ||
                        address % kBytes != 0)) {
    find_range(lane, address, kBytes, access, site);
  }
  if (lane->watch != 0 && lane->recent_range->writable) {
    watch_global(lane, address, kBytes, access, site);
  }
  return reinterpret_cast<u8*>(address);
}

template <u32 kBytes>
inline u8* generic_pointer(Lane* lane, u64 address, Access access, u32 site) {
  if ((address & kSharedWindow) != 0) {
    return shared_pointer<kBytes>(lane, u32(address), plain(access), site);
  }
  if ((address & kLocalWindow) != 0)
    return local_pointer<kBytes>(lane, address, plain(access), site);
  return global_pointer<kBytes>(lane, address, access, site);
}

template <typename T>
inline T load(const u8* pointer) {
  T value;
  __builtin_memcpy(&value, pointer, sizeof value);
  return value;
}

template <typename T>
inline void store(u8* pointer, T value) {
  __builtin_memcpy(pointer, &value, sizeof value);
}

}  // namespace emulator
