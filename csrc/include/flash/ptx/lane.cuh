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

}  // namespace flash::ptx
