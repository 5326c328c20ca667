// Atomic updates of global memory by which thread blocks talk to each other (PTX ISA 9.7.13.13).
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

}  // namespace flash::ptx
