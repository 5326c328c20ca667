// Integer instructions whose C++ operator differs: shift amounts, division by zero, wide products.
#pragma once

#include "types.h"

namespace emulator {

template <typename T>
inline constexpr u32 kBits = sizeof(T) * 8;

// Twice the width of T, same signedness.
template <typename T>
struct WideOf;
template <>
struct WideOf<u16> {
  using Type = u32;
};
template <>
struct WideOf<s16> {
  using Type = s32;
};
template <>
struct WideOf<u32> {
  using Type = u64;
};
template <>
struct WideOf<s32> {
  using Type = s64;
};
template <>
struct WideOf<u64> {
  using Type = unsigned __int128;
};
template <>
struct WideOf<s64> {
  using Type = __int128;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T>
inline T mul_lo(T a, T b) {
  return T(Wide<T>(a) * Wide<T>(b));
}
template <typename T>
inline T mul_hi(T a, T b) {
  return T((Wide<T>(a) * Wide<T>(b)) >> kBits<T>);
}
template <typename T>
inline Wide<T> mul_wide(T a, T b) {
  return Wide<T>(a) * Wide<T>(b);
}

// Shift amounts beyond the width give 0, or the sign.
template <typename T>
inline T shl(T value, u32 amount) {
  return amount < kBits<T> ? T(value << amount) : T(0);
}
template <typename T>
inline T shr(T value, u32 amount) {
  if (amount >= kBits<T>) return value < 0 ? T(-1) : T(0);
  return T(value >> amount);
}

// Division by zero and the one overflow are unspecified in PTX; NVIDIA GPUs yield all ones.
template <typename T>
inline T divide(T a, T b) {
  if (b == 0) return T(-1);
  if (T(-1) < 0 && b == T(-1)) return T(0 - Wide<T>(a));
  return a / b;
}
template <typename T>
inline T remainder(T a, T b) {
  if (b == 0) return T(-1);
  if (T(-1) < 0 && b == T(-1)) return 0;
  return a % b;
}

template <typename T>
inline T saturating_add(s64 sum) {
  return sum > 0x7FFFFFFF ? T(0x7FFFFFFF) : sum < -s64(0x80000000) ? T(-s64(0x80000000)) : T(sum);
}

// cvt.sat between integers: clamps to the range of To.
template <typename To, typename From>
inline To to_integer_range(From value) {
  constexpr bool kSigned = To(-1) < To(0);
  constexpr __int128 kMax = (__int128{1} << (kBits<To> - kSigned)) - 1;
  constexpr __int128 kMin = kSigned ? -kMax - 1 : 0;
  __int128 wide = value;
  return wide > kMax ? To(kMax) : wide < kMin ? To(kMin) : To(wide);
}

inline u32 funnel_shift_left(u32 low, u32 high, u32 amount) {
  return u32((u64{high} << 32 | low) << amount >> 32);
}
inline u32 funnel_shift_right(u32 low, u32 high, u32 amount) {
  return amount == 32 ? high : u32((u64{high} << 32 | low) >> amount);
}

// Bit field extract; the sign bit is that of the field, or of the value where the field ends
// outside it.
template <typename T>
inline T bfe(T value, u32 position, u32 length) {
  position &= 255;
  length &= 255;
  if (length == 0) return 0;
  u32 sign_position = position + length - 1 < kBits<T> - 1 ? position + length - 1 : kBits<T> - 1;
  bool negative = T(-1) < 0 && (u64(value) >> sign_position & 1);
  u64 field =
      position < kBits<T> ? u64(value) << (64 - kBits<T>) >> (64 - kBits<T>) >> position : 0;
  u32 present = position < kBits<T> ? kBits<T> - position : 0;
  if (length < present) present = length;
  u64 mask = present >= 64 ? ~u64{0} : (u64{1} << present) - 1;
  field &= mask;
  return T(negative ? field | ~mask : field);
}

template <typename T>
inline T bfi(T field, T base, u32 position, u32 length) {
  position &= 255;
  length &= 255;
  if (position >= kBits<T> || length == 0) return base;
  T mask = T(length >= kBits<T> ? T(-1) : (T(1) << length) - 1) << position;
  return (base & ~mask) | (T(field << position) & mask);
}

// prmt.b32, default mode: every selector nibble picks a byte of {b, a}, or its sign.
inline u32 prmt(u32 a, u32 b, u32 selector) {
  u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    u32 pick = selector >> (4 * i) & 15;
    u32 byte = u32(bytes >> (8 * (pick & 7))) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// Any function of three bits as a truth table; constant tables fold to a few operations.
inline u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  if (table & 0x01) result |= ~a & ~b & ~c;
  if (table & 0x02) result |= ~a & ~b & c;
  if (table & 0x04) result |= ~a & b & ~c;
  if (table & 0x08) result |= ~a & b & c;
  if (table & 0x10) result |= a & ~b & ~c;
  if (table & 0x20) result |= a & ~b & c;
  if (table & 0x40) result |= a & b & ~c;
  if (table & 0x80) result |= a & b & c;
  return result;
}

template <typename T>
inline u32 count_leading_zeros(T value) {
  return value == 0 ? kBits<T> : u32(__builtin_clzll(u64(value))) - (64 - kBits<T>);
}

// Position of the highest bit that differs from the sign, or all ones.
template <typename T>
inline u32 bfind(T value) {
  u64 bits = T(-1) < 0 && value < 0 ? u64(~value) : u64(value);
  return bits == 0 ? ~0u : 63 - u32(__builtin_clzll(bits));
}

inline u32 reverse_bits(u32 value) {
  u32 result = 0;
  for (u32 i = 0; i < 32; ++i) result |= (value >> i & 1) << (31 - i);
  return result;
}

}  // namespace emulator
