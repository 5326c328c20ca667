// Sums of products as an H200's tensor cores form them, 16 products (8 of tf32) and an f32 summand
// at a time: all are cut to 25 bits behind the point of the largest (whose exponent is the sum of
// its factors'), added exactly, and the sum is cut to f32. For mma and for wgmma.
#pragma once

#include "device_calls.h"
#include "types.h"

namespace emulator {

inline constexpr u32 kDepth = 16;  // products of a sum; those of tf32 are followed by zeros
inline constexpr u32 kMaxColumns = 256;
inline constexpr u32 kBlockColumns = 8;  // N is a multiple
// Of columns in memory: rows that are a power of two apart would compete for the same cache sets.
inline constexpr u32 kStride = kMaxColumns + 16;

// Factors: their bits, which who uses them fills in; their values, and the power of two at or below
// each, 0 for 0. `plain`: no infinity, NaN, nor anything whose products could leave the range of
// f32.
struct FactorsA {  // of one warp
  alignas(64) u32 bits[16][kDepth];
  alignas(64) f32 values[16][kDepth];
  alignas(64) f32 powers[16][kDepth];
  bool plain;
};
struct FactorsB {
  alignas(64) u32 bits[kDepth][kStride];
  alignas(64) f32 values[kDepth][kStride];
  alignas(64) f32 powers[kDepth][kStride];
  bool plain;
};

// Fragments (PTX ISA, m16n8k16): lane l has g = l / 4 and t = l % 4.
//   A: rows g and g+8, columns 2t, 2t+1 and 2t+8, 2t+9   a0 (g, 2t) a1 (g+8, 2t) a2 (g, 2t+8) a3
//   B: rows 2t, 2t+1 and 2t+8, 2t+9, column g            b0, b1
//   C: rows g and g+8, columns 2t, 2t+1                  c0 c1 (g), c2 c3 (g+8), every 8 columns
// m16n8k8 of tf32 is the same with one value in place of two.

// Calls place(k, bits) for the factors in register `i` of those of lane t along k.
template <typename Place>
inline void for_each_factor(MmaType type, u32 t, u32 i, u32 bits, Place place) {
  if (type == MmaType::kTf32) return place(t + 4 * i, bits);
  place(2 * t + 8 * i, bits & 0xFFFF);
  place(2 * t + 8 * i + 1, bits >> 16);
}
inline void put_a(MmaType type, u32 lane, const u32* registers, FactorsA& a) {
  for (u32 i = 0; i < 4; ++i) {
    for_each_factor(type, lane % 4, i >> 1, registers[i],
                    [&](u32 k, u32 bits) { a.bits[lane / 4 + 8 * (i & 1)][k] = bits; });
  }
}
// Calls move(i, pair) with the accumulators c[i] and c[i + 1] of a lane and their place in
// `matrix`.
template <typename Move>
inline void for_each_accumulator(u32 columns, u32 lane, f32* matrix, Move move) {
  for (u32 block = 0; block < columns / 8; ++block) {
    f32* upper = matrix + lane / 4 * kStride + 8 * block + 2 * (lane % 4);
    move(4 * block, upper);
    move(4 * block + 2, upper + 8 * kStride);
  }
}

// Values and powers from bits.
void finish_factors(MmaType type, FactorsA& a);
void finish_factors(MmaType type, FactorsB& b, u32 columns);

// c (16 rows of kStride, of which `columns` count) += a b.
void multiply_add(MmaType type, const FactorsA& a, const FactorsB& b, u32 columns, f32* c);

}  // namespace emulator
