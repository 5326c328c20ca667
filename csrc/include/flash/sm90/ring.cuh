// Position in a ring of buffers: which buffer, and the parity of the pass over the ring.
#pragma once

#include "flash/ptx/mbarrier.cuh"

namespace flash::sm90 {

template <int kBuffers>
struct RingPosition {
  int buffer = 0;
  uint32_t parity = 0;

  // The position that advance() has left.
  FLASH_DEVICE RingPosition before() const {
    return buffer == 0 ? RingPosition{kBuffers - 1, parity ^ 1} : RingPosition{buffer - 1, parity};
  }

  FLASH_DEVICE void advance() {
    if (++buffer == kBuffers) {
      buffer = 0;
      parity ^= 1;
    }
  }
};

FLASH_DEVICE void wait_phase(uint32_t barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
}

}  // namespace flash::sm90
