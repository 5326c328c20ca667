// Rows of an accumulator of matmuls: what the softmax of every family needs.
//
// In the accumulators of mma.m16n8k16 and of wgmma, the four threads of a quad share a row.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
// NVRTC has no <limits> and no builtin for it; that of PyTorch 2.4, of CUDA 12.1, has not even
// __builtin_bit_cast. GCC takes no quotient by 0 for a constant.
#ifdef __CUDACC_RTC__
constexpr float kNegativeInfinity = -1.0f / 0.0f;
#else
constexpr float kNegativeInfinity = -__builtin_huge_valf();
#endif

// Largest value over the four threads that share a row.
FLASH_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

FLASH_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

}  // namespace flash
