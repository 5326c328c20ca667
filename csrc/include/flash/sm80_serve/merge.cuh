// Putting together what was computed of a row over parts of its keys: by the warps of a thread
// block, and by the thread blocks of a split. A sink is one more part, whose output is 0.
//
// Parts are added in their order, so that the result has the same bits whoever was first. They are
// read eight at a time, without a branch in between: splits lie in L2, and waits would add up.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80_serve {

// Log-sum-exp of all parts of a row. `lse_of`: of a part, by its number.
template <typename LseOf>
FLASH_DEVICE float merged_lse(int n_parts, float sink, const LseOf& lse_of) {
  float largest = sink;
#pragma unroll 8
  for (int part = 0; part < n_parts; ++part) largest = fmaxf(largest, lse_of(part));
  if (largest == kNegativeInfinity) largest = 0.0f;  // nothing is seen, or all is NaN
  float sum = ptx::ex2((sink - largest) * kLog2e);
#pragma unroll 8
  for (int part = 0; part < n_parts; ++part) sum += ptx::ex2((lse_of(part) - largest) * kLog2e);
  return ptx::fma_rn(ptx::lg2(sum), kLn2, largest);
}

// Four columns of a row. A part that saw nothing may hold anything.
template <typename LseOf, typename SumOf>
FLASH_DEVICE float4 merged_columns(int n_parts, float lse, const LseOf& lse_of,
                                   const SumOf& sum_of) {
  float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
  for (int part = 0; part < n_parts; ++part) {
    const float part_lse = lse_of(part);
    const float4 sum = sum_of(part);
    const bool saw = part_lse != kNegativeInfinity;
    const float weight = ptx::ex2((part_lse - lse) * kLog2e);
    total.x = saw ? fmaf(weight, sum.x, total.x) : total.x;
    total.y = saw ? fmaf(weight, sum.y, total.y) : total.y;
    total.z = saw ? fmaf(weight, sum.z, total.z) : total.z;
    total.w = saw ? fmaf(weight, sum.w, total.w) : total.w;
  }
  return total;
}

}  // namespace flash::sm80_serve
