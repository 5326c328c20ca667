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

}  // namespace flash::ptx
