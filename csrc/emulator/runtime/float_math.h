// Floating-point instructions. Flush-to-zero (.ftz) is applied by hand on inputs and results: the
// machine's own mode stays IEEE.
#pragma once

#include "conversions.h"
#include "types.h"

namespace emulator {

// cvt and arithmetic rounding: nearest even, toward zero, down, up.
enum class Round : u32 { kNearest, kZero, kDown, kUp };

inline f32 ftz(f32 value) {
  u32 bits = as<u32>(value);
  return (bits & 0x7F800000) == 0 ? as<f32>(bits & 0x80000000) : value;
}

template <typename T>
inline T saturate(T value) {
  return value >= T(1) ? T(1) : value > T(0) ? value : T(0);  // NaN becomes 0
}

template <typename T>
inline T canonical_nan();
template <>
inline f32 canonical_nan<f32>() {
  return as<f32>(0x7FFFFFFFu);
}
template <>
inline f64 canonical_nan<f64>() {
  return as<f64>(u64{0x7FF8} << 48);
}

// Conversions yield this NaN, whatever the payload.
inline f32 canonical(f32 value) { return value == value ? value : canonical_nan<f32>(); }

// A NaN operand yields the other one; -0 is less than +0.
template <typename T>
inline T fmin(T a, T b) {
  if (a != a) return b != b ? canonical_nan<T>() : b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}
template <typename T>
inline T fmax(T a, T b) {
  if (a != a) return b != b ? canonical_nan<T>() : b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a > b ? a : b;
}
// The .NaN forms.
template <typename T>
inline T fmin_nan(T a, T b) {
  return a != a || b != b ? canonical_nan<T>() : fmin(a, b);
}
template <typename T>
inline T fmax_nan(T a, T b) {
  return a != a || b != b ? canonical_nan<T>() : fmax(a, b);
}

inline f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
inline f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
inline f32 square_root(f32 value) { return __builtin_sqrtf(value); }
inline f64 square_root(f64 value) { return __builtin_sqrt(value); }

// The approximate functions of the GPU are replaced by correct or nearly correct ones.
inline f32 ex2(f32 value) { return __builtin_exp2f(value); }
inline f32 lg2(f32 value) { return __builtin_log2f(value); }
inline f32 sine(f32 value) { return __builtin_sinf(value); }
inline f32 cosine(f32 value) { return __builtin_cosf(value); }
inline f32 hyperbolic_tangent(f32 value) { return __builtin_tanhf(value); }
inline f32 rsqrt(f32 value) { return 1.0f / __builtin_sqrtf(value); }
// div.approx is a multiplication by the reciprocal, and that of 2^126 and above is flushed.
inline f32 divide_approximately(f32 a, f32 b) {
  return __builtin_fabsf(b) > 0x1p126f ? a * ftz(1.0f / b) : a / b;
}

// Arithmetic with a rounding mode other than nearest (rounding.cpp).
f32 add_rounded(f32 a, f32 b, Round mode);
f64 add_rounded(f64 a, f64 b, Round mode);
f32 mul_rounded(f32 a, f32 b, Round mode);
f64 mul_rounded(f64 a, f64 b, Round mode);
f32 fma_rounded(f32 a, f32 b, f32 c, Round mode);
f64 fma_rounded(f64 a, f64 b, f64 c, Round mode);
f32 div_rounded(f32 a, f32 b, Round mode);
f64 div_rounded(f64 a, f64 b, Round mode);
f32 sqrt_rounded(f32 value, Round mode);
f64 sqrt_rounded(f64 value, Round mode);
f32 f64_to_f32_rounded(f64 value, Round mode);
f32 s64_to_f32_rounded(s64 value, Round mode);
f32 u64_to_f32_rounded(u64 value, Round mode);
f64 s64_to_f64_rounded(s64 value, Round mode);
f64 u64_to_f64_rounded(u64 value, Round mode);
u16 f32_to_f16_rounded(f32 value, Round mode);
u16 f32_to_bf16_rounded(f32 value, Round mode);

// f16 and bf16 fma: exact product, one rounding (rounding.cpp).
u16 fma_f16(u16 a, u16 b, u16 c);
u16 fma_bf16(u16 a, u16 b, u16 c);

inline f64 round_to_integer(f64 value, Round mode) {
  switch (mode) {
    case Round::kNearest:
      return __builtin_nearbyint(value);
    case Round::kZero:
      return __builtin_trunc(value);
    case Round::kDown:
      return __builtin_floor(value);
    default:
      return __builtin_ceil(value);
  }
}

// Out-of-range values saturate.
template <typename Int>
inline Int to_integer(f64 value, Round mode, u64 nan) {
  constexpr bool kSigned = Int(-1) < Int(0);
  constexpr u32 kValueBits = sizeof(Int) * 8 - kSigned;
  constexpr Int kMax = Int(~u64{0} >> (64 - kValueBits));
  constexpr Int kMin = kSigned ? Int(~u64{kMax}) : Int(0);
  if (value != value) return Int(nan);
  f64 rounded = round_to_integer(value, mode);
  if (rounded >= 2.0 * f64(u64{1} << (kValueBits - 1))) return kMax;
  if (rounded <= f64(kMin)) return kMin;
  return Int(rounded);
}

}  // namespace emulator
