#include "tensor_core.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "scalar.h"

namespace emulator {

namespace {

constexpr s32 kFractionBits = 25;
constexpr f32 kLeastPlain = 0x1p-50f, kMostPlain = 0x1p60f;  // of factors
constexpr f32 kLeastSum = 0x1p-100f, kMostSum = 0x1p120f;    // their products, and summands

template <MmaType kType>
f32 widen(u32 bits) {
  if (kType == MmaType::kF16) return f16_to_f32(u16(bits));
  if (kType == MmaType::kBf16) return bf16_to_f32(u16(bits));
  return as<f32>(bits & ~0x1FFFu);  // the lowest bits of tf32 are ignored
}

// Returns whether the factors are plain.
template <MmaType kType>
bool finish(const u32* bits, f32* values, f32* powers, u32 count) {
  u32 odd = 0;
  for (u32 i = 0; i < count; ++i) {
    const f32 value = values[i] = widen<kType>(bits[i]);
    const f32 power = as<f32>(as<u32>(value) & 0x7F800000);
    // Numbers subnormal in their format count with the power of normal ones.
    const f32 least = kType == MmaType::kF16 ? std::max(power, 0x1p-14f) : power;
    powers[i] = value == 0 ? 0 : least;
    const f32 size = __builtin_fabsf(value);
    odd |= u32(!(size <= kMostPlain)) | u32((size != 0) & (size < kLeastPlain));
  }
  return odd == 0;
}

bool finish(MmaType type, const u32* bits, f32* values, f32* powers, u32 count) {
  auto* finish_type = type == MmaType::kF16    ? &finish<MmaType::kF16>
                      : type == MmaType::kBf16 ? &finish<MmaType::kBf16>
                                               : &finish<MmaType::kTf32>;
  return finish_type(bits, values, powers, count);
}

// One column at a time, whatever the numbers.
struct Number {
  f32 significand;
  s32 exponent;
};
Number split(f32 value, s32 least) {
  u32 bits = as<u32>(value);
  s32 biased = s32(bits >> 23 & 255);
  if ((bits & 0x7FFFFFFF) == 0) return {value, -10000};
  if (biased < least) return {value * as<f32>(u32(254 - least) << 23), least - 127};
  return {as<f32>((bits & 0x807FFFFF) | 0x3F800000), biased - 127};
}

f32 cut_to_f32(f64 total) {
  f32 nearest = f32(total);
  if (fabs(f64(nearest)) > fabs(total) && fabs(total) < 0x1p128) {
    nearest = as<f32>(as<u32>(nearest) - 1);
  }
  return nearest;
}

f32 dot_of_any(MmaType type, const f32* a, const f32* b, f32 c) {
  const s32 least = type == MmaType::kF16 ? 113 : 1;
  f64 plain_sum = c;
  const Number summand = split(c, 1);
  s32 largest = std::max(summand.exponent, -300);
  Number products[kDepth];
  for (u32 k = 0; k < kDepth; ++k) {
    const f32 factor = b[k * kStride];
    const Number x = split(a[k], least), y = split(factor, least);
    products[k] = {x.significand * y.significand, x.exponent + y.exponent};
    largest = std::max(largest, products[k].exponent);
    plain_sum += f64(a[k]) * f64(factor);
  }
  if (plain_sum - plain_sum != 0)
    return plain_sum == plain_sum ? f32(plain_sum) : as<f32>(~0u >> 1);
  auto cut = [&](Number number) {
    return trunc(ldexp(f64(number.significand), number.exponent - largest + kFractionBits));
  };
  f64 total = cut(summand);
  for (const Number& product : products) total += cut(product);
  return cut_to_f32(ldexp(total, largest - kFractionBits));
}

// Sixteen columns at once; the compiler splits what the processor has no registers for.
typedef f32 F16 __attribute__((vector_size(64)));
typedef s32 I16 __attribute__((vector_size(64)));
typedef f64 D16 __attribute__((vector_size(128)));
typedef s64 L16 __attribute__((vector_size(128)));
constexpr u32 kVector = 16;

template <typename V>
V load(const f32* values) {
  V result;
  memcpy(&result, values, sizeof result);
  return result;
}

F16 max(F16 a, F16 b) { return a > b ? a : b; }

// False where a summand is not plain.
bool dots_of_plain(const f32* a, const f32* a_powers, const FactorsB& b, u32 column, f32* c) {
  const F16 summand = load<F16>(c + column);
  const F16 size = as<F16>(as<I16>(summand) & 0x7FFFFFFF);
  const I16 odd = ~(size <= kMostSum) | ((size != 0) & (size < kLeastSum));
  s32 any = 0;
  for (u32 i = 0; i < kVector; ++i) any |= odd[i];
  if (any != 0) return false;
  F16 largest = max(as<F16>(as<I16>(summand) & 0x7F800000), F16{} + kLeastSum);
  for (u32 k = 0; k < kDepth; ++k) {
    largest = max(largest, a_powers[k] * load<F16>(&b.powers[k][column]));
  }
  const F16 scale = as<F16>(((254 + kFractionBits) << 23) - as<I16>(largest));
  I16 sum = {};
  for (u32 k = 0; k < kDepth; ++k) {
    sum += __builtin_convertvector(a[k] * load<F16>(&b.values[k][column]) * scale, I16);
  }
  const D16 unit = __builtin_convertvector(largest, D16) * (1.0 / (1 << kFractionBits));
  const I16 cut = __builtin_convertvector(summand * scale, I16);
  const D16 total = (__builtin_convertvector(sum, D16) + __builtin_convertvector(cut, D16)) * unit;
  const L16 kept = as<L16>(total) & ~s64{0x1FFFFFFF};  // the bits that f32 has
  const F16 result = __builtin_convertvector(as<D16>(kept), F16);
  memcpy(c + column, &result, sizeof result);
  return true;
}

}  // namespace

void finish_factors(MmaType type, FactorsA& a) {
  a.plain = finish(type, a.bits[0], a.values[0], a.powers[0], 16 * kDepth);
}

void finish_factors(MmaType type, FactorsB& b, u32 columns) {
  b.plain = true;
  for (u32 k = 0; k < kDepth; ++k) {
    b.plain &= finish(type, b.bits[k], b.values[k], b.powers[k], columns);
  }
}

void multiply_add(MmaType type, const FactorsA& a, const FactorsB& b, u32 columns, f32* c) {
  for (u32 row = 0; row < 16; ++row) {
    f32* own = c + row * kStride;
    for (u32 column = 0; column < columns; column += kVector) {
      if (a.plain && b.plain && dots_of_plain(a.values[row], a.powers[row], b, column, own)) {
        continue;
      }
      const u32 end = std::min(column + kVector, columns);
      for (u32 at = column; at < end; ++at) {
        own[at] = dot_of_any(type, a.values[row], &b.values[0][at], own[at]);
      }
    }
  }
}

}  // namespace emulator
