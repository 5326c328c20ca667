// Hints to the compiler's scheduler; no instruction results from them.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// Makes `value` opaque, so that what is computed from it is computed again afterwards instead of
// being kept in registers across this point.
FLASH_DEVICE void forget(uint32_t& value) { asm volatile("" : "+r"(value)); }

// Makes `value` be computed before the volatile operations that follow.
FLASH_DEVICE void needed_here(uint32_t value) { asm volatile("" ::"r"(value)); }

}  // namespace flash::ptx
