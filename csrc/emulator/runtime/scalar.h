// What instructions on registers compute where C++ has no operator for it
// (py/flash_helpers/emulator/translator/scalar_ops.py).
//
// Flush-to-zero is applied by hand on inputs and results: the machine's own mode stays IEEE.
#pragma once

#include <fenv.h>

#include "types.h"

namespace emulator {

// --- integers ---

// Twice the width, same signedness. Quotients need it for the one that overflows.
inline s32 wide(s16 value) { return value; }
inline u32 wide(u16 value) { return value; }
inline s64 wide(s32 value) { return value; }
inline u64 wide(u32 value) { return value; }
inline __int128 wide(s64 value) { return value; }
inline unsigned __int128 wide(u64 value) { return value; }

inline u64 pair(u32 high, u32 low) { return u64{high} << 32 | low; }

// bfe: beyond the end of the value lies its sign, and so does a field that ends there.
template <typename Wide>
inline Wide bit_field(Wide value, u32 position, u32 length) {
  position &= 255;
  length &= 255;
  if (length == 0) return 0;
  value = position < 64 ? value >> position : value < 0 ? -1 : 0;
  u32 unused = length < 64 ? 64 - length : 0;
  return Wide(u64(value) << unused) >> unused;
}

template <typename T>
inline T insert_bit_field(T field, T base, u32 position, u32 length) {
  constexpr u32 kBits = sizeof(T) * 8;
  position &= 255;
  length &= 255;
  if (position >= kBits || length == 0) return base;
  T mask = T(length >= kBits ? T(-1) : (T(1) << length) - 1) << position;
  return (base & ~mask) | (T(field << position) & mask);
}

// prmt without a mode: each nibble of the selector picks one byte of the two words, or its sign.
inline u32 permuted_bytes(u32 a, u32 b, u32 selector) {
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    u32 pick = selector >> (4 * i);
    u32 byte = u32(pair(b, a) >> (8 * (pick & 7))) & 0xFF;
    if (pick & 8) byte = byte & 0x80 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// --- f32 and f64 ---

inline f32 ftz(f32 value) {
  u32 bits = as<u32>(value);
  return (bits & 0x7F800000) == 0 ? as<f32>(bits & 0x80000000) : value;
}

template <typename T>
inline T saturate(T value) {
  return value >= T(1) ? T(1) : value > T(0) ? value : T(0);  // NaN becomes 0
}

// Conversions and minima yield this NaN, whatever the payload.
inline f32 canonical(f32 value) { return value == value ? value : as<f32>(0x7FFFFFFFu); }
inline f64 canonical(f64 value) { return value == value ? value : as<f64>(u64{0x7FF8} << 48); }

// A NaN operand yields the other one; -0 is less than +0.
template <typename T>
inline T minimum(T a, T b) {
  if (a != a || b != b) return canonical(a != a ? b : a);
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}

template <typename T>
inline bool signs_differ(T a, T b) {
  return __builtin_signbit(a) != __builtin_signbit(b);
}

inline f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
inline f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

// An operation in another rounding mode. Volatile operands keep it between the two mode changes; in
// line, the compiler would forget that they are, and merge it with the same one in another mode.
template <typename Operation, typename... T>
[[gnu::noinline]] auto rounded(int mode, Operation operation, volatile T... values) {
  fesetround(mode);
  volatile auto result = operation(T(values)...);
  fesetround(FE_TONEAREST);
  return decltype(operation(T(values)...))(result);
}

// Of a value that is integral already; what is out of range saturates.
template <typename Int>
inline Int to_integer(f64 value, u64 nan) {
  constexpr bool kSigned = Int(-1) < Int(0);
  constexpr u32 kValueBits = sizeof(Int) * 8 - kSigned;
  constexpr Int kMax = Int(~u64{0} >> (64 - kValueBits));
  constexpr Int kMin = kSigned ? Int(~u64{kMax}) : Int(0);
  if (value != value) return Int(nan);
  if (value >= 2.0 * f64(u64{1} << (kValueBits - 1))) return kMax;
  return value <= f64(kMin) ? kMin : Int(value);
}

// --- 16 bits, and tf32 ---

inline constexpr u16 kCanonicalNan16 = 0x7FFF;

// `bits` without the lowest `shift`, rounded to nearest even. A carry out of a fraction moves into
// the exponent, up to infinity, as it must.
inline u32 round_even(u32 bits, u32 shift) {
  return (bits + (1u << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
}

inline f32 f16_to_f32(u16 value) {
  u32 bits = u32(value & 0x7FFF) << 13;  // the exponent is 112 too small, that of infinity 224
  f32 magnitude = bits < 0x0F800000 ? as<f32>(bits) * 0x1p112f : as<f32>(bits | 0x7F800000);
  return as<f32>(as<u32>(magnitude) | u32(value & 0x8000) << 16);
}
inline f32 bf16_to_f32(u16 value) { return as<f32>(u32{value} << 16); }

inline u16 f32_to_f16(f32 value) {
  u32 sign = as<u32>(value) >> 16 & 0x8000;
  u32 magnitude = as<u32>(value) & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return kCanonicalNan16;
  if (magnitude >= 0x47800000) return u16(sign | 0x7C00);  // 2^16 and above
  // The sum with 1/2 counts units of 2^-24, which are those of subnormal results.
  if (magnitude < 0x38800000) return u16(sign | (as<u32>(as<f32>(magnitude) + 0.5f) & 0xFFFF));
  return u16(sign | round_even(magnitude - 0x38000000, 13));
}
inline u16 f32_to_bf16(f32 value) {
  return value == value ? u16(round_even(as<u32>(value), 16)) : kCanonicalNan16;
}

// Round to nearest, ties away from zero, on the 10-bit fraction of tf32. NaN keep their payload.
inline u32 f32_to_tf32(f32 value) {
  return (as<u32>(value) + (value == value ? 0x1000 : 0)) & ~0x1FFFu;
}

// To odd, so that rounding again, to 16 bits, is rounding once.
inline f32 f64_to_odd_f32(f64 value) {
  f32 nearest = f32(value);
  if (nearest == value) return nearest;
  return as<f32>((as<u32>(nearest) - (__builtin_fabs(nearest) > __builtin_fabs(value))) | 1);
}

// A sum in f64 whose last bit is odd if it is not exact: the product of two bf16 and a third may
// be too far apart for f64, and the third decides a tie.
inline f64 sum_to_odd(f64 a, f64 b) {
  volatile f64 sum = a + b;
  volatile f64 from_b = sum - a, from_a = sum - from_b;
  f64 lost = (a - from_a) + (b - from_b);
  u64 bits = as<u64>(f64(sum));
  if (lost == 0 || lost != lost || (bits & 1)) return sum;
  return as<f64>((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

struct F16 {
  static f64 widen(u32 bits) { return f16_to_f32(u16(bits)); }
  static u32 narrow(f64 value) { return f32_to_f16(f64_to_odd_f32(value)); }
};
struct Bf16 {
  static f64 widen(u32 bits) { return bf16_to_f32(u16(bits)); }
  static u32 narrow(f64 value) { return f32_to_bf16(f64_to_odd_f32(value)); }
};

// An operation on 16-bit numbers, or on both halves of pairs. In f64 sums of two are exact, or
// their smaller one changes nothing; fma takes sum_to_odd.
template <typename Format, typename Operation, typename Bits, typename... More>
inline Bits halves(Operation operation, Bits first, More... others) {
  u32 low = Format::narrow(operation(Format::widen(first), Format::widen(others)...));
  if (sizeof(Bits) == 2) return Bits(low);
  return Bits(Format::narrow(operation(Format::widen(first >> 16), Format::widen(others >> 16)...))
                  << 16 |
              low);
}

// --- atom and red ---

// Replaces the value at `pointer` by update(old) and returns old, on the host's own atomics: blocks
// on different OS threads stay correct. Bits is the unsigned type of the same size as T.
template <typename T, typename Bits, typename Update>
inline T atomic_update(u8* pointer, Update update) {
  auto* target = reinterpret_cast<Bits*>(pointer);
  Bits old = __atomic_load_n(target, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(target, &old, as<Bits>(T(update(as<T>(old)))), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return as<T>(old);
}

}  // namespace emulator
