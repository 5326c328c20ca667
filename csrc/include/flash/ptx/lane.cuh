// The thread's number in its warp.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// %laneid (PTX ISA 10.4), asked for here: what comes of threadIdx may be kept in a register.
FLASH_DEVICE uint32_t lane_id() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
  return lane;
}

// The warp's number in a one-dimensional thread block, asked for here, too.
FLASH_DEVICE uint32_t warp_of_block() {
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
  return __shfl_sync(0xffffffffu, thread / 32, 0);
}

}  // namespace flash::ptx
