// The bulk copies as translated kernels call them.

#include <string.h>

#include "bulk_copies.h"
#include "collective.h"
#include "memory.h"
#include "sm90.h"

namespace emulator {

const TensorMap& tensor_map(Lane* lane, u64 address, u32 rank, u32 site) {
  static_assert(sizeof(TensorMap) == 2 * 64);
  global_pointer<64>(lane, address, Access::kRead, site);
  global_pointer<64>(lane, address + 64, Access::kRead, site);
  const auto& map = *reinterpret_cast<const TensorMap*>(address);
  if (map.magic != TensorMap::kMagic) {
    fail(lane, ErrorKind::kTensorMap, site,
         "the 128 bytes at 0x%llx are no tensor map of the emulator: pack_tensor_map() of "
         "flash_helpers.emulator makes them, cuTensorMapEncodeTiled those of a GPU",
         static_cast<unsigned long long>(address));
  }
  if (map.rank != rank) {
    fail(lane, ErrorKind::kTensorMap, site,
         "the instruction has %u coordinates, its tensor map %u dimensions", rank, map.rank);
  }
  return map;
}

namespace {

// Plain bytes as a tensor of one dimension.
TensorMap plain_map(Lane* lane, u64 address, u32 bytes, u32 site) {
  constexpr u32 kMost = 0xFFFF * 16;  // boxes count in 16 bits
  if (bytes % 16 != 0 || bytes == 0 || bytes > kMost || address % 16 != 0) {
    fail(lane, ErrorKind::kInvalidOperand, site,
         "cp.async.bulk of %u bytes at global address 0x%llx: both must be multiples of 16, and "
         "the size at most %u",
         bytes, static_cast<unsigned long long>(address), kMost);
  }
  TensorMap map{};
  map.address = address;
  map.dims[0] = bytes / 16;
  map.box[0] = u16(bytes / 16);
  map.rank = 1;
  map.element_bytes = 16;
  return map;
}

// What createpolicy returns, as libcu++ encodes it (cuda/annotated_ptr): from bit 52 on 4 bits of
// fraction or block size, then the secondary and primary priority (1 and 2 bits) and how the policy
// applies (2 bits). A fraction of all accesses has nothing below; a range of addresses has where it
// starts (7 bits, from 44 on) and how many blocks it has (7, from 37 on).
bool is_cache_policy(u64 policy) {
  constexpr u64 kFraction = 2, kRange = 3;
  constexpr u64 kLargestBlock = 13;  // 32 MiB
  if (policy >> 61 != 0) return false;
  switch (policy >> 59) {
    case kFraction:
      return policy << 12 == 0;
    case kRange:
      return policy << 27 == 0 && (policy >> 51 & 1) == 0 && (policy >> 37 & 0x7F) != 0 &&
             (policy >> 52 & 0xF) <= kLargestBlock;
    default:
      return false;
  }
}

}  // namespace

void check_cache_policy(Lane* lane, u64 policy, u32 site) {
  if (is_cache_policy(policy)) return;
  fail(lane, ErrorKind::kInvalidOperand, site,
       "L2 cache policy 0x%016llx, which no createpolicy returns (evict_first of all accesses: "
       "0x12f0000000000000, evict_last: 0x14f0000000000000)",
       static_cast<unsigned long long>(policy));
}

void tensor_load(Lane* lane, u32 rank, u32 destination, u64 map, const s32* place, u32 barrier,
                 u32 site) {
  const TensorMap& known = tensor_map(lane, map, rank, site);
  lane->block->sm90->bulk.load(lane, known, place, destination, barrier, site);
}

void tensor_store(Lane* lane, u32 rank, u64 map, const s32* place, u32 source, u32 site) {
  const TensorMap& known = tensor_map(lane, map, rank, site);
  lane->block->sm90->bulk.store(lane, known, place, source, StoreBy::kReplacing, site);
}

void bulk_load(Lane* lane, u32 destination, u64 source, u32 bytes, u32 barrier, u32 site) {
  const s32 place = 0;
  TensorMap map = plain_map(lane, source, bytes, site);
  lane->block->sm90->bulk.load(lane, map, &place, destination, barrier, site);
}

void bulk_store(Lane* lane, u64 destination, u32 source, u32 bytes, StoreBy by, u32 site) {
  const s32 place = 0;
  TensorMap map = plain_map(lane, destination, bytes, site);
  lane->block->sm90->bulk.store(lane, map, &place, source, by, site);
}

void bulk_commit_group(Lane* lane) { lane->block->sm90->bulk.commit_group(lane); }

void bulk_wait_group(Lane* lane, u32 pending_groups, Until until) {
  lane->block->sm90->bulk.wait_group(lane, pending_groups, until);
}

void fence_proxy_async(Lane* lane, Proxied memory) {
  Sm90* sm90 = lane->block->sm90;
  const bool of_shared = (u32(memory) & u32(Proxied::kShared)) != 0;
  if (of_shared) sm90->mbarriers.fence(lane);
  if (!sm90->shadow.tracked()) return;
  if (of_shared) sm90->shadow.fence(lane);
  if ((u32(memory) & u32(Proxied::kGlobal)) != 0) sm90->global.fence(lane);
  lane->clock += 1;
}

}  // namespace emulator
