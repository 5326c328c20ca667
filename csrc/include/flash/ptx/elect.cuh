// One thread of a warp.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// elect.sync (PTX ISA 9.7.13.15, sm_90 and later): whether this is the thread that was elected, of
// a whole warp. ptxas knows that a branch behind it has one thread; behind a comparison of lanes it
// puts a loop over threads around each instruction of the copy engine.
FLASH_DEVICE bool elect_one() {
  uint32_t is_elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}\n"
      : "=r"(is_elected));
  return is_elected != 0;
}

}  // namespace flash::ptx
