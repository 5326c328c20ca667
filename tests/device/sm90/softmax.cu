// Online softmax of the Hopper family over given blocks of scores. In place of P V, the
// exponentials of every block are added up as they are.
#include "flash/sm90/softmax.cuh"

using namespace flash;
using namespace flash::sm90;

// For one warp: scores[block][lane][kCount]. out[lane][kCount]: the output, normalised.
// statistics[lane][2][3]: log-sum-exp, the maximum that is kept, and 1 / sum. `optimistic`: all
// blocks but the first are exponentiated with the old maximum, and only if that overflows, which
// overflows[block] tells, once more with a new one.
template <MaxPolicy kPolicy, int kCount>
__device__ void softmax(const float* scores, float* out, float* statistics, int* overflows,
                        int n_blocks, float scale_log2, int optimistic) {
  const int lane = threadIdx.x;
  RowStatistics<kPolicy> rows;
  float o[kCount] = {};
  for (int block = 0; block < n_blocks; ++block) {
    float s[kCount], block_sum[2];
    const float* from = scores + (block * 32 + lane) * kCount;
    for (int i = 0; i < kCount; ++i) s[i] = from[i];
    bool raise = true;
    if (optimistic && block != 0) {
      rows.exponentiate(s, scale_log2, block_sum);
      raise = __any_sync(0xffffffffu, RowStatistics<kPolicy>::overflowed(block_sum));
      if (lane == 0) overflows[block] = raise;
      for (int i = 0; raise && i < kCount; ++i) s[i] = from[i];
    }
    if (raise) {
      rows.raise(s, scale_log2);
      rows.exponentiate(s, scale_log2, block_sum);
      rows.rescale_output(o);
    }
    rows.add(block_sum);
    for (int i = 0; i < kCount; ++i) o[i] += s[i];
  }
  float inverse[2], log_sum_exp[2];
  rows.finish(inverse, log_sum_exp);
  for (int half = 0; half < 2; ++half) {
    float* of_row = statistics + lane * 6 + 3 * half;
    of_row[0] = log_sum_exp[half];
    of_row[1] = rows.max[half];
    of_row[2] = inverse[half];
  }
  for (int i = 0; i < kCount; ++i) out[lane * kCount + i] = o[i] * inverse[i / 2 % 2];
}

#define ENTRY(NAME, POLICY, COUNT)                                                              \
  extern "C" __global__ void NAME(const float* scores, float* out, float* statistics,           \
                                  int* overflows, int n_blocks, float scale_log2,               \
                                  int optimistic) {                                             \
    softmax<MaxPolicy::POLICY, COUNT>(scores, out, statistics, overflows, n_blocks, scale_log2, \
                                      optimistic);                                              \
  }

ENTRY(exact_48, kExact, 24)
ENTRY(exact_128, kExact, 64)
ENTRY(lazy_48, kLazy, 24)
ENTRY(lazy_128, kLazy, 64)
ENTRY(optimistic_48, kOptimistic, 24)
ENTRY(optimistic_128, kOptimistic, 64)

// out[thread]: whether sums[thread][2] count as overflowed.
extern "C" __global__ void overflowed(const float* sums, int* out) {
  const float own[2] = {sums[2 * threadIdx.x], sums[2 * threadIdx.x + 1]};
  out[threadIdx.x] = RowStatistics<MaxPolicy::kOptimistic>::overflowed(own);
}
