// Updates of global memory by which thread blocks talk to each other (PTX
// ISA 9.7.13.13, 9.7.13.14), and loads of what they write (9.7.9.8).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// atom.acq_rel.gpu.global.inc.u32: counts to `last`, then begins with 0 again; returns the count
// before. What this thread wrote or knows of is known to each thread that counts later.
FLASH_DEVICE uint32_t atomic_inc_acq_rel(uint32_t* counter, uint32_t last) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;\n"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before;
}

// ld.acquire.gpu.global.u32: what was known to the thread that released the value is known.
FLASH_DEVICE uint32_t ld_acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(value) : "l"(word) : "memory");
  return value;
}

// red.release.gpu.global.add.u32: what this thread wrote or knows of is known to those that acquire
// the sum.
FLASH_DEVICE void red_add_release(uint32_t* word, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;\n" ::"l"(word), "r"(value) : "memory");
}

}  // namespace flash::ptx
