// Number types and bit casts. Kernels are compiled often, so these headers include almost nothing.
#pragma once

#include <stdint.h>

namespace emulator {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

inline constexpr u32 kWarpSize = 32;

// Reinterprets the bits; both types have the same size (checked by the builtin).
template <typename To, typename From>
inline constexpr To as(From value) {
  return __builtin_bit_cast(To, value);
}

#define EMULATOR_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

}  // namespace emulator
