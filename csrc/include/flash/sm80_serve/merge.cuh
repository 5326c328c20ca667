// Putting together what was computed of a row over parts of its keys: by the warps of a thread
// block, and by thread blocks. A sink is one more part, whose output is 0.
//
// Parts are added in their order, so that the result has the same bits whoever was first. Many are
// read at once, without a branch in between: those of other thread blocks lie in L2, and waits
// would add up.
#pragma once

#include "flash/ptx/math.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80_serve {

struct MergedColumns {
  float4 o;   // four columns of a row
  float lse;  // of the row
};

// `lse_of`, `sum_of`: of a part, by its number. A part that saw nothing may hold any sum.
template <int kAtOnce, typename LseOf, typename SumOf>
FLASH_DEVICE MergedColumns merged(int n_parts, float sink, const LseOf& lse_of,
                                  const SumOf& sum_of) {
  float largest = sink;
  float weights = sink == kNegativeInfinity ? 0.0f : 1.0f;
  float4 o = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int first = 0; first < n_parts; first += kAtOnce) {
    float lse[kAtOnce];
    float4 sum[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = min(first + i, n_parts - 1);
      lse[i] = lse_of(part);
      sum[i] = sum_of(part);
    }
    float next = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) next = fmaxf(next, lse[i]);
    const float base = next == kNegativeInfinity ? 0.0f : next;  // nothing is seen, or all is NaN
    const float before = ptx::ex2((largest - base) * kLog2e);
    weights *= before;
    o = {o.x * before, o.y * before, o.z * before, o.w * before};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool saw = first + i < n_parts && lse[i] != kNegativeInfinity;
      const float weight = saw ? ptx::ex2((lse[i] - base) * kLog2e) : 0.0f;
      weights += weight;
      o.x = saw ? fmaf(weight, sum[i].x, o.x) : o.x;
      o.y = saw ? fmaf(weight, sum[i].y, o.y) : o.y;
      o.z = saw ? fmaf(weight, sum[i].z, o.z) : o.z;
      o.w = saw ? fmaf(weight, sum[i].w, o.w) : o.w;
    }
    largest = next;
  }
  if (largest == kNegativeInfinity) largest = 0.0f;
  const float inverse = weights == 0.0f ? 0.0f : ptx::rcp(weights);
  return {{o.x * inverse, o.y * inverse, o.z * inverse, o.w * inverse},
          ptx::fma_rn(ptx::lg2(weights), kLn2, largest)};
}

}  // namespace flash::sm80_serve
