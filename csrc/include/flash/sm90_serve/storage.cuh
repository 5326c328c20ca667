// Shared memory of a serving kernel: that of the forward pass, and what sequences of different
// lengths need beside it.
#pragma once

#include "flash/sm90/storage.cuh"
#include "flash/sm90_serve/config.h"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct Storage : sm90::SharedStorage<kConfig.forward()> {
  // A block of V with rows that must be cleared has landed; the rows have been cleared. There is a
  // place for as many as V has buffers.
  FLASH_DEVICE uint32_t landed(int place) const {
    return this->base + kConfig.clearing_offset() + place * HopperServeKernelConfig::kClearingBytes;
  }
  FLASH_DEVICE uint32_t cleared(int place) const { return landed(place) + 8; }
  // Which buffer it is, and the first row that is kept and the first behind those.
  FLASH_DEVICE uint32_t clearing(int place) const { return landed(place) + 16; }

  FLASH_DEVICE uint32_t tile(int slot) const {
    return this->base + kConfig.tiles_offset() + slot * HopperServeKernelConfig::kTileBytes;
  }
};

}  // namespace flash::sm90_serve
