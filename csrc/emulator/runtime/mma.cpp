// mma: D = A * B + C with f32 accumulators, m16n8k16 for 16-bit inputs and m16n8k8 for tf32.
//
// Results have the bits of an H200's (tests/emulator/test_conformance.py): all products and C are
// cut to 25 bits behind the point of the largest, added exactly, and the sum is cut to f32.
#include <string.h>

#include "collective.h"
#include "conversions.h"
#include "device_calls.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

namespace emulator {

namespace {

struct Operands {
  MmaType type;
  u32 count;
  MmaOperands* matrices;
};

u32 depth(MmaType type) { return type == MmaType::kTf32 ? 8 : 16; }

// The low 13 bits of a tf32 operand are ignored.
f32 tf32_to_f32(u32 bits) { return as<f32>(bits & ~0x1FFFu); }

// Eight 16-bit values to f32.
void widen8(MmaType type, const u16* from, f32* to) {
#if defined(__F16C__) && defined(__AVX2__)
  __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  __m256 values = type == MmaType::kF16
                      ? _mm256_cvtph_ps(bits)
                      : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  _mm256_storeu_ps(to, values);
#else
  for (u32 i = 0; i < 8; ++i) {
    to[i] = type == MmaType::kF16 ? f16_to_f32(from[i]) : bf16_to_f32(from[i]);
  }
#endif
}

// Fragment layout (PTX ISA, m16n8k16): lane l has g = l / 4 and t = l % 4.
//   A: rows g and g+8, columns 2t, 2t+1 and 2t+8, 2t+9   a0 (g, 2t) a1 (g+8, 2t) a2 (g, 2t+8) a3
//   B: rows 2t, 2t+1 and 2t+8, 2t+9, column g            b0, b1
//   C: rows g and g+8, columns 2t, 2t+1                  c0 c1 (g), c2 c3 (g+8)
// m16n8k8 of tf32 is the same with one value in place of two.
// Values are kept as significand and exponent; 0 has an exponent below all others.
struct Matrices {
  alignas(32) u32 a_pairs[16][8];  // [row][column / 2]
  alignas(32) u16 b_bits[16][8];   // [row][column]
  alignas(32) f32 a[16][16];
  alignas(32) f32 b[16][8];
  alignas(32) f32 c[16][8];
  alignas(32) f32 d[16][8];
  alignas(32) s32 a_exponent[16][16];
  alignas(32) s32 b_exponent[16][8];
  alignas(32) s32 c_exponent[16][8];
  bool a_special, bc_special;  // some infinity or NaN
};

// Splits f32 values; `least` is the biased exponent of the smallest normal number of their format.
// Returns whether one is infinite or NaN.
bool split(f32* values, s32* exponents, u32 count, s32 least) {
  const f32 scale = as<f32>(u32(254 - least) << 23);
  u32 special = 0;
  for (u32 i = 0; i < count; ++i) {
    u32 bits = as<u32>(values[i]);
    s32 biased = s32(bits >> 23 & 255);
    special |= u32(biased == 255);
    exponents[i] = (bits & 0x7FFFFFFF) == 0 ? -10000 : (biased > least ? biased : least) - 127;
    values[i] = biased >= least ? as<f32>((bits & 0x807FFFFF) | 0x3F800000) : values[i] * scale;
  }
  return special != 0;
}
s32 least_exponent(MmaType type) { return type == MmaType::kF16 ? 113 : 1; }

void gather_a(Matrices& m, MmaType type, MmaOperands* const* lanes, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const u32* a = lanes[lane][index].a;
    u32 g = lane / 4, t = lane % 4;
    m.a_pairs[g][t] = a[0];
    m.a_pairs[g + 8][t] = a[1];
    m.a_pairs[g][t + 4] = a[2];
    m.a_pairs[g + 8][t + 4] = a[3];
  }
  for (u32 row = 0; row < 16; ++row) {
    if (type == MmaType::kTf32) {
      for (u32 k = 0; k < 8; ++k) m.a[row][k] = tf32_to_f32(m.a_pairs[row][k]);
      for (u32 k = 8; k < 16; ++k) m.a[row][k] = 0;
      continue;
    }
    auto* bits = reinterpret_cast<const u16*>(m.a_pairs[row]);
    widen8(type, bits, m.a[row]);
    widen8(type, bits + 8, m.a[row] + 8);
  }
  m.a_special = split(m.a[0], m.a_exponent[0], 16 * 16, least_exponent(type));
}

void gather_bc(Matrices& m, MmaType type, MmaOperands* const* lanes, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const MmaOperands& own = lanes[lane][index];
    u32 g = lane / 4, t = lane % 4;
    for (u32 half = 0; half < 2; ++half) {
      if (type == MmaType::kTf32) m.b[t + 4 * half][g] = tf32_to_f32(own.b[half]);
      m.b_bits[2 * t + 8 * half][g] = u16(own.b[half]);
      m.b_bits[2 * t + 8 * half + 1][g] = u16(own.b[half] >> 16);
      memcpy(&m.c[g + 8 * half][2 * t], &own.c[2 * half], 2 * sizeof(f32));
    }
  }
  const u32 rows = depth(type);
  for (u32 row = 0; row < rows && type != MmaType::kTf32; ++row) {
    widen8(type, m.b_bits[row], m.b[row]);
  }
  bool b_special = split(m.b[0], m.b_exponent[0], 8 * rows, least_exponent(type));
  m.bc_special = split(m.c[0], m.c_exponent[0], 16 * 8, 1) || b_special;
}

constexpr s32 kFractionBits = 25;

// Eight columns at once; the compiler splits what the processor has no registers for.
typedef s32 I8 __attribute__((vector_size(32)));
typedef f32 F8 __attribute__((vector_size(32)));
typedef s64 L8 __attribute__((vector_size(64)));
typedef f64 D8 __attribute__((vector_size(64)));

template <typename V, typename T>
V load(const T (&values)[8]) {
  V result;
  memcpy(&result, values, sizeof result);
  return result;
}
template <typename T>
I8 max(I8 a, T b) {
  return a > b ? a : b;
}

// The original value where it is infinite or NaN, else one of its sign, or zero.
f64 special(f32 significand, s32 exponent) {
  if (exponent < 128) return significand;
  return (as<u32>(significand) & 0x7FFFFF) == 0 ? f64(significand) * __builtin_inf()
                                                : __builtin_nan("");
}

// Infinities and NaN come out as of any sum; finite results are left as they are.
void add_specials(Matrices& m, u32 row, u32 depth) {
  for (u32 column = 0; column < 8; ++column) {
    f64 sum = special(m.c[row][column], m.c_exponent[row][column]);
    for (u32 k = 0; k < depth; ++k) {
      sum += special(m.a[row][k], m.a_exponent[row][k]) *
             special(m.b[k][column], m.b_exponent[k][column]);
    }
    if (sum - sum != 0) m.d[row][column] = sum == sum ? f32(sum) : as<f32>(0x7FFFFFFFu);
  }
}

void multiply(Matrices& m, u32 depth) {
  for (u32 row = 0; row < 16; ++row) {
    I8 largest = max(load<I8>(m.c_exponent[row]), -300);
    for (u32 k = 0; k < depth; ++k) {
      largest = max(m.a_exponent[row][k] + load<I8>(m.b_exponent[k]), largest);
    }
    // Shifts to units of the last bit that counts, and drops what lies behind it.
    const I8 bias = 127 + kFractionBits - largest;
    auto cut = [&](F8 significands, I8 exponents) {
      F8 scale = as<F8>(max(exponents + bias, 0) << 23);
      return __builtin_convertvector(significands * scale, I8);
    };
    I8 sum = {};
    for (u32 k = 0; k < depth; ++k) {
      sum += cut(m.a[row][k] * load<F8>(m.b[k]), m.a_exponent[row][k] + load<I8>(m.b_exponent[k]));
    }
    I8 c = cut(load<F8>(m.c[row]), load<I8>(m.c_exponent[row]));
    L8 scale = (__builtin_convertvector(largest, L8) + (1023 - kFractionBits)) << 52;
    D8 total = (__builtin_convertvector(sum, D8) + __builtin_convertvector(c, D8)) * as<D8>(scale);
    F8 nearest = __builtin_convertvector(total, F8);
    D8 back = __builtin_convertvector(nearest, D8);
    L8 too_far = (total > 0) & (back > total) & (total < 0x1p128);
    too_far |= (total < 0) & (back < total) & (total > -0x1p128);
    I8 bits = as<I8>(nearest) + __builtin_convertvector(too_far, I8);  // true is -1
    memcpy(m.d[row], &bits, sizeof bits);
    if (EMULATOR_UNLIKELY(m.a_special || m.bc_special)) add_specials(m, row, depth);
  }
}

void scatter(const Matrices& m, MmaOperands* const* lanes, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    f32* c = lanes[lane][index].c;
    u32 g = lane / 4, t = lane % 4;
    memcpy(c, &m.d[g][2 * t], 2 * sizeof(f32));
    memcpy(c + 2, &m.d[g + 8][2 * t], 2 * sizeof(f32));
  }
}

void execute(Warp* warp, u32) {
  MmaOperands* lanes[kWarpSize];
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    lanes[lane] = static_cast<Operands*>(warp->lanes[lane].operands)->matrices;
  }
  auto* operands = static_cast<Operands*>(warp->lanes[0].operands);
  warp->block->counts.mma_instructions += operands->count;
  Matrices matrices;
  for (u32 index = 0; index < operands->count; ++index) {
    // All lanes run the same code, so lane 0 tells for all whether A is that of the last one.
    if (index == 0 || lanes[0][index].a != lanes[0][index - 1].a) {
      gather_a(matrices, operands->type, lanes, index);
    }
    gather_bc(matrices, operands->type, lanes, index);
    multiply(matrices, depth(operands->type));
    scatter(matrices, lanes, index);
  }
}

}  // namespace

void mma(Lane* lane, MmaType type, MmaOperands* operands, u32 count, u32 site) {
  Operands own{type, count, operands};
  require_full_warp(lane, Wait::kMma, site);
  meet(lane, Wait::kMma, u32(type), ~0u, site, &own, &execute, SameSite::kRequired);
}

}  // namespace emulator
