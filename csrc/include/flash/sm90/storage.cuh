// Shared memory of a Hopper-family kernel, and its barriers.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm90/config.h"

namespace flash::sm90 {

// Addresses from one base; all of it fixed at compile time but the base. Tiles start at multiples
// of 1024 bytes, the size of a swizzle atom.
template <HopperForwardKernelConfig kConfig>
struct SharedStorage {
  static constexpr int kGroups = kConfig.n_mma_groups;
  static constexpr int kBuffers = kConfig.n_buffers;
  static constexpr int kQBuffers = kConfig.n_q_buffers;
  static constexpr int kGroupQBytes = kConfig.q_bytes() / kGroups;
  static constexpr int kGroupOBytes = kConfig.o_bytes() / kGroups;
  static constexpr int kWarpOBytes = kGroupOBytes / HopperForwardKernelConfig::kGroupWarps;
  static constexpr int kKOffset = kQBuffers * kConfig.q_bytes();
  static constexpr int kVOffset = kKOffset + kBuffers * kConfig.k_bytes();
  static constexpr int kOOffset = kConfig.o_in_q ? 0 : kVOffset + kBuffers * kConfig.v_bytes();
  static constexpr int kBarrierOffset = kConfig.smem_data_bytes();
  static constexpr int kTileOffset = kBarrierOffset + 8 * kConfig.n_barriers();
  static_assert(kGroupQBytes % 1024 == 0 && kConfig.k_bytes() % 1024 == 0);
  static_assert(kConfig.v_bytes() % 1024 == 0 && kConfig.value_columns() <= kConfig.d_head);
  static_assert(!kConfig.o_in_q || kQBuffers == 1, "staging in Q needs a single Q buffer");

  uint32_t base;

  FLASH_DEVICE uint32_t q(int buffer, int group) const {
    return base + buffer * kConfig.q_bytes() + group * kGroupQBytes;
  }
  FLASH_DEVICE uint32_t k(int buffer) const { return base + kKOffset + buffer * kConfig.k_bytes(); }
  FLASH_DEVICE uint32_t v(int buffer) const { return base + kVOffset + buffer * kConfig.v_bytes(); }
  // One warp's 16 output rows.
  FLASH_DEVICE uint32_t o(int group, int warp) const {
    constexpr int kGroupBytes = kConfig.o_in_q ? kGroupQBytes : kGroupOBytes;
    return base + kOOffset + group * kGroupBytes + warp * kWarpOBytes;
  }

  // "Full": the copy engine has written the tile. "Empty": every consumer has read it.
  FLASH_DEVICE uint32_t q_full(int buffer, int group) const {
    return barrier(buffer * kGroups + group);
  }
  FLASH_DEVICE uint32_t q_empty(int buffer, int group) const {
    return barrier((kQBuffers + buffer) * kGroups + group);
  }
  FLASH_DEVICE uint32_t k_full(int buffer) const { return kv_barrier(0, buffer); }
  FLASH_DEVICE uint32_t k_empty(int buffer) const { return kv_barrier(1, buffer); }
  FLASH_DEVICE uint32_t v_full(int buffer) const { return kv_barrier(2, buffer); }
  FLASH_DEVICE uint32_t v_empty(int buffer) const { return kv_barrier(3, buffer); }

  // Number of the tile whose Q the buffer holds; handed over by the same barriers.
  FLASH_DEVICE uint32_t tile_index(int buffer) const { return base + kTileOffset + 4 * buffer; }

 private:
  FLASH_DEVICE uint32_t barrier(int index) const { return base + kBarrierOffset + 8 * index; }
  FLASH_DEVICE uint32_t kv_barrier(int kind, int buffer) const {
    return barrier(2 * kQBuffers * kGroups + kind * kBuffers + buffer);
  }
};

}  // namespace flash::sm90
