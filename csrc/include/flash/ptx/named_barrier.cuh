// Named barriers of a thread block (PTX ISA 9.7.13.1): 16 of them, number 0 is __syncthreads.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// bar.sync id, threads: waits until `threads` threads have come, those that only arrive included.
FLASH_DEVICE void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// bar.arrive id, threads: counts as having come, without waiting.
FLASH_DEVICE void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// bar.red.or.pred id, threads: bar.sync that tells all threads whether any of them says so.
FLASH_DEVICE bool bar_red_or(int id, int threads, bool mine) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.b32 p, %3, 0;\n"
      "bar.red.or.pred q, %1, %2, p;\n"
      "selp.b32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(mine))
      : "memory");
  return any != 0;
}

}  // namespace flash::ptx
