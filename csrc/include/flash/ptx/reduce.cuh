// Sums in global memory that many threads add to. In which order the terms come is open, and so
// are the last bits of an fp32 sum.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// red.global.add.v4.f32 (PTX ISA 9.7.13.8, sm_90 and later): adds to four neighbours, 16-byte
// aligned, each by itself.
FLASH_DEVICE void red_add_f32x4(float* sums, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(sums), "f"(a), "f"(b),
               "f"(c), "f"(d)
               : "memory");
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 (PTX ISA 9.7.9.25.4.2, sm_90 and
// later): the copy engine adds `bytes` of shared memory, a multiple of 16, to global memory. Both
// addresses are multiples of 16. One thread's; the groups are those of tma_store_commit.
FLASH_DEVICE void bulk_reduce_add_f32(void* sums, uint32_t src, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n" ::"l"(sums),
      "r"(src), "r"(bytes)
      : "memory");
}

// red.global.add.f32 (PTX ISA 9.7.13.8): adds to one.
FLASH_DEVICE void red_add_f32(float* sum, float value) {
  asm volatile("red.global.add.f32 [%0], %1;\n" ::"l"(sum), "f"(value) : "memory");
}

}  // namespace flash::ptx
