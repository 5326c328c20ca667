// mma: D = A * B + C with f32 accumulators, m16n8k16 for 16-bit inputs and m16n8k8 for tf32.
//
// Products are exact in f32; every sum is rounded, k ascending. The hardware adds in another order
// and width, so results agree within rounding only.
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
struct Matrices {
  alignas(32) u32 a_pairs[16][8];  // [row][column / 2]
  alignas(32) u16 b_bits[16][8];   // [row][column]
  alignas(32) f32 a[16][16];
  alignas(32) f32 b[16][8];
  alignas(32) f32 c[16][8];
};

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
      continue;
    }
    auto* bits = reinterpret_cast<const u16*>(m.a_pairs[row]);
    widen8(type, bits, m.a[row]);
    widen8(type, bits + 8, m.a[row] + 8);
  }
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
  if (type == MmaType::kTf32) return;
  for (u32 row = 0; row < 16; ++row) widen8(type, m.b_bits[row], m.b[row]);
}

// The hardware has no partial sums that could overflow.
f32 sum_in_f64(const Matrices& m, u32 row, u32 column, u32 depth) {
  f64 sum = m.c[row][column];
  for (u32 k = 0; k < depth; ++k) sum += f64(m.a[row][k]) * m.b[k][column];
  return f32(sum);
}

void multiply(Matrices& m, u32 depth) {
  for (u32 row = 0; row < 16; ++row) {
    f32 sum[8];
    memcpy(sum, m.c[row], sizeof sum);
    for (u32 k = 0; k < depth; ++k) {
      f32 a = m.a[row][k];
      for (u32 column = 0; column < 8; ++column) {
        sum[column] = __builtin_fmaf(a, m.b[k][column], sum[column]);
      }
    }
    for (u32 column = 0; column < 8; ++column) {
      bool infinite_or_nan = (as<u32>(sum[column]) & 0x7F800000) == 0x7F800000;
      if (EMULATOR_UNLIKELY(infinite_or_nan)) sum[column] = sum_in_f64(m, row, column, depth);
    }
    memcpy(m.c[row], sum, sizeof sum);
  }
}

void scatter(const Matrices& m, MmaOperands* const* lanes, u32 index) {
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    f32* c = lanes[lane][index].c;
    u32 g = lane / 4, t = lane % 4;
    memcpy(c, &m.c[g][2 * t], 2 * sizeof(f32));
    memcpy(c + 2, &m.c[g + 8][2 * t], 2 * sizeof(f32));
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
