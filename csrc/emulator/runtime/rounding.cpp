// Arithmetic in the rounding modes that C++ has no operator for. Rare, so kept out of line.
#include <cfenv>
#include <cmath>

#include "float_math.h"

namespace emulator {

namespace {

class RoundingScope {
 public:
  explicit RoundingScope(Round mode) : saved_(std::fegetround()) {
    static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[u32(mode)]);
  }
  ~RoundingScope() { std::fesetround(saved_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int saved_;
};

// Volatile operands keep the operation between the two mode changes.
template <typename T, typename Operation>
T rounded(Round mode, T a, T b, T c, Operation operation) {
  volatile T va = a, vb = b, vc = c;
  RoundingScope scope(mode);
  volatile T result = operation(T(va), T(vb), T(vc));
  return result;
}

template <typename To, typename From>
To convert(Round mode, From value) {
  volatile From from = value;
  RoundingScope scope(mode);
  volatile To result = To(from);
  return result;
}

// fma in f64 where the sum may be inexact: rounding to odd makes the second rounding harmless.
f64 fma_to_odd(f64 a, f64 b, f64 c) {
  f64 product = a * b;  // exact: the factors have at most 11 bits
  f64 sum = product + c;
  if (!std::isfinite(sum)) return sum;
  f64 part = sum - product;
  f64 error = (product - (sum - part)) + (c - part);
  u64 bits = as<u64>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  bool away_from_zero = (error > 0) == (sum > 0);
  return as<f64>(away_from_zero ? bits + 1 : bits - 1);
}

// Narrows f64 to odd f32, so that rounding to 16 bits afterwards is correct.
f32 narrow_to_odd(f64 value) {
  f32 result = f64_to_f32_rounded(value, Round::kZero);
  if (f64(result) == value || value != value || !std::isfinite(result)) return result;
  return as<f32>(as<u32>(result) | 1);
}

// Truncates the f32 to a multiple of the 16-bit format's last place in direction `mode`.
template <typename Narrow, typename Widen>
u16 narrow_rounded(f32 value, Round mode, Narrow narrow, Widen widen) {
  u16 nearest = narrow(value);
  f32 back = widen(nearest);
  if (value != value || back == value || mode == Round::kNearest) return nearest;
  bool toward_smaller_magnitude = mode == Round::kZero || (mode == Round::kDown) == (value > 0);
  bool is_larger = std::fabs(back) > std::fabs(value);
  if (toward_smaller_magnitude == is_larger) {
    return u16(is_larger ? nearest - 1 : nearest + 1);
  }
  return nearest;
}

}  // namespace

#define EMULATOR_ROUNDED(T)                                                          \
  T add_rounded(T a, T b, Round mode) {                                              \
    return rounded(mode, a, b, T(0), [](T x, T y, T) { return x + y; });             \
  }                                                                                  \
  T mul_rounded(T a, T b, Round mode) {                                              \
    return rounded(mode, a, b, T(0), [](T x, T y, T) { return x * y; });             \
  }                                                                                  \
  T div_rounded(T a, T b, Round mode) {                                              \
    return rounded(mode, a, b, T(0), [](T x, T y, T) { return x / y; });             \
  }                                                                                  \
  T fma_rounded(T a, T b, T c, Round mode) {                                         \
    return rounded(mode, a, b, c, [](T x, T y, T z) { return std::fma(x, y, z); });  \
  }                                                                                  \
  T sqrt_rounded(T value, Round mode) {                                              \
    return rounded(mode, value, T(0), T(0), [](T x, T, T) { return std::sqrt(x); }); \
  }
EMULATOR_ROUNDED(f32)
EMULATOR_ROUNDED(f64)
#undef EMULATOR_ROUNDED

f32 f64_to_f32_rounded(f64 value, Round mode) { return convert<f32>(mode, value); }
f32 s64_to_f32_rounded(s64 value, Round mode) { return convert<f32>(mode, value); }
f64 s64_to_f64_rounded(s64 value, Round mode) { return convert<f64>(mode, value); }

// x86 has no unsigned conversion before AVX-512: halve with a sticky bit.
f32 u64_to_f32_rounded(u64 value, Round mode) {
  if (value >> 63 == 0) return convert<f32>(mode, s64(value));
  return 2.0f * convert<f32>(mode, s64(value >> 1 | (value & 1)));
}
f64 u64_to_f64_rounded(u64 value, Round mode) {
  if (value >> 63 == 0) return convert<f64>(mode, s64(value));
  return 2.0 * convert<f64>(mode, s64(value >> 1 | (value & 1)));
}

u16 f32_to_f16_rounded(f32 value, Round mode) {
  return narrow_rounded(value, mode, &f32_to_f16, &f16_to_f32);
}
u16 f32_to_bf16_rounded(f32 value, Round mode) {
  return narrow_rounded(value, mode, &f32_to_bf16, &bf16_to_f32);
}

u16 fma_f16(u16 a, u16 b, u16 c) {
  return f32_to_f16(narrow_to_odd(fma_to_odd(f16_to_f32(a), f16_to_f32(b), f16_to_f32(c))));
}
u16 fma_bf16(u16 a, u16 b, u16 c) {
  return f32_to_bf16(narrow_to_odd(fma_to_odd(bf16_to_f32(a), bf16_to_f32(b), bf16_to_f32(c))));
}

}  // namespace emulator
