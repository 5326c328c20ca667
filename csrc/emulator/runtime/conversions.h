// 16-bit floating point: exact widening, and narrowing with the PTX rounding modes.
#pragma once

#include "types.h"

namespace emulator {

inline constexpr u16 kCanonicalNan16 = 0x7FFF;  // what PTX conversions to f16 and bf16 return

inline f32 bf16_to_f32(u16 value) { return as<f32>(u32{value} << 16); }

// Shifts `value` right by `shift` bits, rounding to nearest, ties to even.
inline u32 shift_right_round_even(u32 value, u32 shift) {
  if (shift > 31) return 0;
  if (shift == 0) return value;
  u32 half = 1u << (shift - 1);
  u32 rest = value & (2 * half - 1);
  u32 result = value >> shift;
  return result + (rest > half || (rest == half && (result & 1)));
}

inline f32 f16_to_f32_portable(u16 value) {
  u32 sign = u32{value} >> 15 << 31;
  u32 exponent = value >> 10 & 31;
  u32 fraction = value & 1023;
  if (exponent == 31) return as<f32>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return as<f32>(sign | (exponent + 112) << 23 | fraction << 13);
  f32 magnitude = f32(fraction) * 0x1p-24f;
  return as<f32>(sign | as<u32>(magnitude));
}

inline u16 f32_to_f16_portable(f32 value) {
  u32 bits = as<u32>(value);
  u32 sign = bits >> 31 << 15;
  u32 magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return kCanonicalNan16;
  if (magnitude >= 0x47800000) return u16(sign | 0x7C00);  // 2^16 and above
  s32 exponent = s32(magnitude >> 23) - 127;
  if (exponent < -14) {  // subnormal result: the fraction counts units of 2^-24
    u32 fraction = (magnitude & 0x7FFFFF) | 0x800000;
    if (magnitude < 0x00800000) return u16(sign);
    return u16(sign | shift_right_round_even(fraction, u32(-1 - exponent)));
  }
  // A carry out of the fraction moves into the exponent, up to infinity, as it must.
  return u16(sign | (shift_right_round_even(magnitude, 13) - (112u << 10)));
}

inline f32 f16_to_f32(u16 value) {
#if defined(__F16C__)
  typedef short Short8 __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps(Short8{short(value)})[0];
#else
  return f16_to_f32_portable(value);
#endif
}

inline u16 f32_to_f16(f32 value) {
#if defined(__F16C__)
  typedef float Float4 __attribute__((vector_size(16)));
  if (value != value) return kCanonicalNan16;
  return u16(__builtin_ia32_vcvtps2ph(Float4{value}, 0)[0]);
#else
  return f32_to_f16_portable(value);
#endif
}

inline u16 f32_to_bf16(f32 value) {
  if (value != value) return kCanonicalNan16;
  return u16(shift_right_round_even(as<u32>(value), 16));
}

// Round to nearest, ties away from zero, on the 10-bit fraction of tf32. NaN keep their payload.
inline u32 f32_to_tf32(f32 value) {
  return (as<u32>(value) + (value == value ? 0x1000 : 0)) & ~0x1FFFu;
}

inline f32 relu(f32 value) { return value > 0 || value != value ? value : 0.0f; }

// cvt.rn.f16x2.f32 d, a, b: a goes to the upper half.
inline u32 pack_f16x2(f32 high, f32 low) { return u32{f32_to_f16(high)} << 16 | f32_to_f16(low); }
inline u32 pack_bf16x2(f32 high, f32 low) {
  return u32{f32_to_bf16(high)} << 16 | f32_to_bf16(low);
}

}  // namespace emulator
