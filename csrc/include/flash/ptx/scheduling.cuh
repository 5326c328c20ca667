// Hints to the compiler's scheduler.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// Makes `value` opaque, so that what is computed from it is computed again afterwards instead of
// being kept in registers across this point. No instruction.
template <typename T>
FLASH_DEVICE void forget(T& value) {
  static_assert(sizeof(T) == 4, "a register");
  asm volatile("" : "+r"(value));
}

// The same of a copy.
FLASH_DEVICE uint32_t hidden(uint32_t value) {
  forget(value);
  return value;
}

template <typename T>
FLASH_DEVICE T* hidden(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// Makes `value` be computed before the volatile operations that follow. No instruction.
FLASH_DEVICE void needed_here(uint32_t value) { asm volatile("" ::"r"(value)); }

// pmevent (PTX ISA 9.7.21.4): counts one event of a profiler. Here it is a fence for ptxas, which
// moves a wait for matmuls across arithmetic but not across this.
FLASH_DEVICE void schedule_fence() { asm volatile("pmevent 1;\n" ::: "memory"); }

}  // namespace flash::ptx
