// A barrier of a thread block whose arrival and wait are two: between them a thread goes on.
#pragma once

#include "flash/ptx/mbarrier.cuh"

namespace flash::sm80_bwd_fused {

// Each thread arrives once a step, and waits for that step before it arrives for the next one. So
// warps may be as far apart as what lies between one's arrival and the others' wait.
struct SplitBarrier {
  static constexpr int kBytes = 8;

  uint32_t address;

  // By one thread; others see it behind a __syncthreads.
  FLASH_DEVICE void init(int n_threads) const { ptx::mbarrier_init(address, n_threads); }

  // What the thread did before is visible to who has waited.
  FLASH_DEVICE void arrive() const { ptx::mbarrier_arrive(address); }

  // Until all threads have arrived for the step.
  FLASH_DEVICE void wait(int step) const {
    while (!ptx::mbarrier_test_wait(address, step & 1)) {
    }
  }
};

}  // namespace flash::sm80_bwd_fused
