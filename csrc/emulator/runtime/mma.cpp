// mma: D = A * B + C with f32 accumulators, m16n8k16 for 16-bit inputs and m16n8k8 for tf32.
//
// Results have the bits of an H200's (tests/emulator/test_conformance.py): all products and C are
// cut to 25 bits behind the point of the largest, added exactly, and the sum is cut to f32.
#include <string.h>

#include "collective.h"
#include "device_calls.h"
#include "scalar.h"

namespace emulator {

namespace {

// Input types: bits in a register, their f32 value, the biased exponent of the smallest normal one.
struct F16Input {
  using Bits = u16;
  static f32 widen(u16 bits) { return f16_to_f32(bits); }
  static constexpr s32 kLeast = 113;
};
struct Bf16Input {
  using Bits = u16;
  static f32 widen(u16 bits) { return bf16_to_f32(bits); }
  static constexpr s32 kLeast = 1;
};
struct Tf32Input {
  using Bits = u32;
  static f32 widen(u32 bits) { return as<f32>(bits & ~0x1FFFu); }  // the lowest bits are ignored
  static constexpr s32 kLeast = 1;
};
struct F32Input {
  using Bits = f32;
  static f32 widen(f32 value) { return value; }
  static constexpr s32 kLeast = 1;
};

// Splits values into significand and exponent; 0 has an exponent below all others. Returns whether
// one is infinite or NaN.
template <typename Input>
bool split(const typename Input::Bits* from, f32* values, s32* exponents, u32 count) {
  constexpr s32 kLeast = Input::kLeast;
  const f32 scale = as<f32>(u32(254 - kLeast) << 23);
  u32 special = 0;
  for (u32 i = 0; i < count; ++i) {
    f32 value = Input::widen(from[i]);
    u32 bits = as<u32>(value);
    s32 biased = s32(bits >> 23 & 255);
    special |= u32(biased == 255);
    exponents[i] = (bits & 0x7FFFFFFF) == 0 ? -10000 : (biased > kLeast ? biased : kLeast) - 127;
    values[i] = biased >= kLeast ? as<f32>((bits & 0x807FFFFF) | 0x3F800000) : value * scale;
  }
  return special != 0;
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

// Fragment layout (PTX ISA, m16n8k16): lane l has g = l / 4 and t = l % 4.
//   A: rows g and g+8, columns 2t, 2t+1 and 2t+8, 2t+9   a0 (g, 2t) a1 (g+8, 2t) a2 (g, 2t+8) a3
//   B: rows 2t, 2t+1 and 2t+8, 2t+9, column g            b0, b1
//   C: rows g and g+8, columns 2t, 2t+1                  c0 c1 (g), c2 c3 (g+8)
// m16n8k8 of tf32 is the same with one value in place of two.
template <typename Input>
class Matrices {
 public:
  void gather_a(MmaOperands* const* lanes, u32 index) {
    alignas(32) Bits bits[16][kDepth];
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      const u32* a = lanes[lane][index].a;
      for (u32 i = 0; i < 4; ++i) {
        memcpy(&bits[lane / 4 + 8 * (i & 1)][kPerRegister * (lane % 4 + 2 * (i & 2))], &a[i], 4);
      }
    }
    a_special_ = split<Input>(bits[0], a_[0], a_exponent_[0], 16 * kDepth);
  }

  void gather_bc(MmaOperands* const* lanes, u32 index) {
    alignas(32) Bits bits[kDepth][8];
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      const MmaOperands& own = lanes[lane][index];
      u32 g = lane / 4, t = lane % 4;
      for (u32 half = 0; half < 2; ++half) {
        for (u32 i = 0; i < kPerRegister; ++i) {
          bits[kPerRegister * (t + 4 * half) + i][g] = Bits(own.b[half] >> 16 * i);
        }
        memcpy(&c_[g + 8 * half][2 * t], &own.c[2 * half], 2 * sizeof(f32));
      }
    }
    bool b_special = split<Input>(bits[0], b_[0], b_exponent_[0], kDepth * 8);
    bc_special_ = split<F32Input>(c_[0], c_[0], c_exponent_[0], 16 * 8) || b_special;
  }

  void multiply() {
    for (u32 row = 0; row < 16; ++row) {
      I8 largest = max(load<I8>(c_exponent_[row]), -300);
      for (u32 k = 0; k < kDepth; ++k) {
        largest = max(a_exponent_[row][k] + load<I8>(b_exponent_[k]), largest);
      }
      // Shifts to units of the last bit that counts, and drops what lies behind it.
      const I8 bias = 127 + kFractionBits - largest;
      auto cut = [&](F8 significands, I8 exponents) {
        F8 scale = as<F8>(max(exponents + bias, 0) << 23);
        return __builtin_convertvector(significands * scale, I8);
      };
      I8 sum = {};
      for (u32 k = 0; k < kDepth; ++k) {
        sum += cut(a_[row][k] * load<F8>(b_[k]), a_exponent_[row][k] + load<I8>(b_exponent_[k]));
      }
      I8 c = cut(load<F8>(c_[row]), load<I8>(c_exponent_[row]));
      L8 scale = (__builtin_convertvector(largest, L8) + (1023 - kFractionBits)) << 52;
      D8 total = __builtin_convertvector(sum, D8) + __builtin_convertvector(c, D8);
      total *= as<D8>(scale);
      F8 nearest = __builtin_convertvector(total, F8);
      D8 back = __builtin_convertvector(nearest, D8);
      L8 too_far = (total > 0) & (back > total) & (total < 0x1p128);
      too_far |= (total < 0) & (back < total) & (total > -0x1p128);
      I8 bits = as<I8>(nearest) + __builtin_convertvector(too_far, I8);  // true is -1
      memcpy(d_[row], &bits, sizeof bits);
      if (EMULATOR_UNLIKELY(a_special_ || bc_special_)) add_specials(row);
    }
  }

  void scatter(MmaOperands* const* lanes, u32 index) const {
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      f32* c = lanes[lane][index].c;
      memcpy(c, &d_[lane / 4][2 * (lane % 4)], 2 * sizeof(f32));
      memcpy(c + 2, &d_[lane / 4 + 8][2 * (lane % 4)], 2 * sizeof(f32));
    }
  }

 private:
  using Bits = typename Input::Bits;
  static constexpr u32 kPerRegister = 4 / sizeof(Bits);
  static constexpr u32 kDepth = 8 * kPerRegister;

  // Infinities and NaN come out as of any sum; finite results are left as they are.
  void add_specials(u32 row) {
    for (u32 column = 0; column < 8; ++column) {
      f64 sum = special(c_[row][column], c_exponent_[row][column]);
      for (u32 k = 0; k < kDepth; ++k) {
        sum += special(a_[row][k], a_exponent_[row][k]) *
               special(b_[k][column], b_exponent_[k][column]);
      }
      if (sum - sum != 0) d_[row][column] = canonical(f32(sum));
    }
  }

  alignas(32) f32 a_[16][kDepth];
  alignas(32) f32 b_[kDepth][8];
  alignas(32) f32 c_[16][8];
  alignas(32) f32 d_[16][8];
  alignas(32) s32 a_exponent_[16][kDepth];
  alignas(32) s32 b_exponent_[kDepth][8];
  alignas(32) s32 c_exponent_[16][8];
  bool a_special_, bc_special_;  // some infinity or NaN
};

struct Operands {
  u32 count;
  MmaOperands* matrices;
};

template <typename Input>
void execute(Warp* warp, u32) {
  MmaOperands* lanes[kWarpSize];
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    lanes[lane] = static_cast<Operands*>(warp->lanes[lane].operands)->matrices;
  }
  const u32 count = static_cast<Operands*>(warp->lanes[0].operands)->count;
  warp->block->counts.mma_instructions += count;
  Matrices<Input> matrices;
  for (u32 index = 0; index < count; ++index) {
    // All lanes run the same code, so lane 0 tells for all whether A is that of the last one.
    if (index == 0 || lanes[0][index].a != lanes[0][index - 1].a) matrices.gather_a(lanes, index);
    matrices.gather_bc(lanes, index);
    matrices.multiply();
    matrices.scatter(lanes, index);
  }
}

}  // namespace

void mma(Lane* lane, MmaType type, MmaOperands* operands, u32 count, u32 site) {
  Operands own{count, operands};
  auto* execute_type = type == MmaType::kF16    ? &execute<F16Input>
                       : type == MmaType::kBf16 ? &execute<Bf16Input>
                                                : &execute<Tf32Input>;
  require_full_warp(lane, Wait::kMma, site);
  meet(lane, Wait::kMma, u32(type), ~0u, site, &own, execute_type, SameSite::kRequired);
}

}  // namespace emulator
