// Conversions between two fp32 values and one packed pair of 16-bit values (PTX ISA 9.7.9.22).
#pragma once

#include "flash/core/dtype.h"
#include "flash/ptx/device.cuh"

namespace flash::ptx {

// cvt.rn.f16x2.f32 d, high, low: the first source becomes the upper half.
FLASH_DEVICE uint32_t cvt_rn_f16x2_f32(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// cvt.rn.bf16x2.f32 d, high, low
FLASH_DEVICE uint32_t cvt_rn_bf16x2_f32(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// The pair (low, high) as one register; `low` belongs to the lower column index.
template <DType kDType>
FLASH_DEVICE uint32_t pack(float low, float high) {
  if constexpr (kDType == DType::kFP16) {
    return cvt_rn_f16x2_f32(low, high);
  } else {
    return cvt_rn_bf16x2_f32(low, high);
  }
}

struct Pair {
  float low;
  float high;
};

// The inverse of pack(), exact. bf16 is the upper half of fp32.
template <DType kDType>
FLASH_DEVICE Pair unpack(uint32_t packed) {
  Pair pair;
  if constexpr (kDType == DType::kFP16) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}\n"
        : "=f"(pair.low), "=f"(pair.high)
        : "r"(packed));
  } else {
    pair.low = __uint_as_float(packed << 16);
    pair.high = __uint_as_float(packed & 0xffff0000u);
  }
  return pair;
}

}  // namespace flash::ptx
