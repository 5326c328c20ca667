// Warp-wide matrix multiply-accumulate on 16-bit operands (PTX ISA 9.7.14.5.8, sm_80 and later).
//
// c (16x8, fp32) += a (16x16, row-major) * b (16x8, column-major). With g = lane / 4, t = lane % 4:
//   a[0] = (row g, k 2t..2t+1)   a[1] = (row g + 8, same k)   a[2], a[3] = the same rows, k + 8
//   b0   = (k 2t..2t+1, column g)   b1 = (k + 8, column g)
//   c[0..1] = (row g, columns 2t..2t+1)   c[2..3] = (row g + 8, same columns)
#pragma once

#include "flash/core/dtype.h"
#include "flash/ptx/device.cuh"

namespace flash::ptx {

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
FLASH_DEVICE void mma_m16n8k16_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
FLASH_DEVICE void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <DType kDType>
FLASH_DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kDType == DType::kFP16) {
    mma_m16n8k16_f16(c, a, b0, b1);
  } else {
    mma_m16n8k16_bf16(c, a, b0, b1);
  }
}

}  // namespace flash::ptx
