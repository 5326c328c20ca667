// Special functions and multiplications that must not be contracted (PTX ISA 9.7.3).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// ex2.approx.ftz.f32: 2^x, at most 2 ulp off; 2^-inf is +0.
FLASH_DEVICE float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// lg2.approx.ftz.f32
FLASH_DEVICE float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// rcp.approx.ftz.f32: at most 1 ulp off
FLASH_DEVICE float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// mul.rn.f32: unlike `a * b`, never contracted with a following addition into an fma.
FLASH_DEVICE float mul_rn(float a, float b) {
  float y;
  asm("mul.rn.f32 %0, %1, %2;\n" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// fma.rn.f32: a * b + c with one rounding
FLASH_DEVICE float fma_rn(float a, float b, float c) {
  float y;
  asm("fma.rn.f32 %0, %1, %2, %3;\n" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}

}  // namespace flash::ptx
