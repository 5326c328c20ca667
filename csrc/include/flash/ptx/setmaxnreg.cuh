// Registers moved between warpgroups while a kernel runs (PTX ISA 9.7.19.5, sm_90a).
//
// Executed by all warps of a warpgroup. An increase waits until the pool has enough, so those that
// give up registers do it first. Needs a known register count at entry: __launch_bounds__(n, 1).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// setmaxnreg.inc.sync.aligned.u32
template <int kRegisters>
FLASH_DEVICE void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// setmaxnreg.dec.sync.aligned.u32
template <int kRegisters>
FLASH_DEVICE void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace flash::ptx
