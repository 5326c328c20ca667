// Whose turn it is to add to sums of dQ, where thread blocks do so one after the other.
#pragma once

#include "flash/ptx/atomic.cuh"

namespace flash::sm90_bwd {

// A counter in global memory of those that have added theirs, and a thread block's number among all
// that add.
struct SumsTurn {
  uint32_t* counter;
  uint32_t number;

  FLASH_DEVICE void await() const {
    while (ptx::ld_acquire(counter) != number) {
    }
  }
  // What was added is over, as this thread, or one that told it, has seen. That is not enough:
  // without the release an addition that is waited for was now and then behind the next thread
  // block's (seen on an H100).
  FLASH_DEVICE void pass_on() const { ptx::red_add_release(counter, 1); }
};

}  // namespace flash::sm90_bwd
