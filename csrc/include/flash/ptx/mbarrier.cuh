// Barriers in shared memory (PTX ISA 9.7.13.15). init, arrive and test_wait: sm_80 and later;
// what announces bytes, try_wait and clusters: sm_90 and later.
//
// A phase of a barrier completes when its expected arrivals have come and as many bytes have landed
// as were announced; the barrier then starts the next phase by itself. Waiters name the phase by
// its parity: phases alternate 0, 1, 0, ...
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// mbarrier.init.shared::cta.b64: by one thread; others see it after fence_mbarrier_init and a
// barrier.
FLASH_DEVICE void mbarrier_init(uint32_t barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(n_arrivals)
               : "memory");
}

// fence.mbarrier_init.release.cluster: makes initialised barriers visible to the copy engine.
FLASH_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// mbarrier.arrive.shared::cta.b64: releases this thread's earlier accesses to the waiters.
FLASH_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// mbarrier.arrive.expect_tx.shared::cta.b64: announces `bytes` to come and arrives.
FLASH_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// What a barrier is asked, about `barrier` and `parity`; returns the answer.
#define FLASH_ASK_MBARRIER(INSTRUCTION) \
  uint32_t done;                        \
  asm volatile(                         \
      "{\n"                             \
      ".reg .pred p;\n" INSTRUCTION     \
      " p, [%1], %2;\n"                 \
      "selp.b32 %0, 1, 0, p;\n"         \
      "}\n"                             \
      : "=r"(done)                      \
      : "r"(barrier), "r"(parity)       \
      : "memory");                      \
  return done != 0

// mbarrier.try_wait.parity.shared::cta.b64: true once the phase of this parity has completed; may
// suspend the thread for a while, and may return false early.
FLASH_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  FLASH_ASK_MBARRIER("mbarrier.try_wait.parity.shared::cta.b64");
}

// mbarrier.test_wait.parity.shared::cta.b64: the same, without suspending the thread.
FLASH_DEVICE bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  FLASH_ASK_MBARRIER("mbarrier.test_wait.parity.shared::cta.b64");
}

// mbarrier.try_wait.parity.acquire.cluster: mbarrier_try_wait for what other blocks have released.
FLASH_DEVICE bool mbarrier_try_acquire(uint32_t barrier, uint32_t parity) {
  FLASH_ASK_MBARRIER("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64");
}

#undef FLASH_ASK_MBARRIER

}  // namespace flash::ptx
