// Sums of products as an H200's tensor cores form them, 16 products and an f32 summand at a time:
// all are cut to 25 bits behind the point of the largest (whose exponent is the sum of its
// factors'), added exactly, and the sum is cut to f32. mma.cpp has the same rule for the warp-wide
// mma.
#pragma once

#include "sm90_calls.h"
#include "types.h"

namespace emulator {

inline constexpr u32 kDepth = 16;  // K of one wgmma
inline constexpr u32 kMaxColumns = 256;
inline constexpr u32 kBlockColumns = 8;  // N is a multiple

// Factors, and the power of two at or below each, 0 for 0. `plain`: no infinity, NaN, nor anything
// whose products could leave the range of f32.
struct FactorsA {  // of one warp
  alignas(64) f32 values[16][kDepth];
  alignas(64) f32 powers[16][kDepth];
  bool plain;
};
struct FactorsB {
  alignas(64) f32 values[kDepth][kMaxColumns];
  alignas(64) f32 powers[kDepth][kMaxColumns];
  bool plain;
};

f32 widen(WgmmaType type, u16 bits);
void finish_factors(WgmmaType type, FactorsA& a);
void finish_factors(WgmmaType type, FactorsB& b, u32 columns);

// c (16 rows of kMaxColumns, of which `columns` count) += a b.
void multiply_add(WgmmaType type, const FactorsA& a, const FactorsB& b, u32 columns, f32* c);

}  // namespace emulator
