// Online softmax of the Hopper family over given blocks of scores. In place of P V, the
// exponentials of every block are added up as they are.
#include "flash/sm90/softmax.cuh"

using namespace flash;
using namespace flash::sm90;

enum Event { kNone, kCorrected, kRepeated };

template <MaxPolicy kPolicy, int kCount>
struct Softmax {
  static constexpr int kBlockN = 2 * kCount;
  RowStatistics<kPolicy> rows;
  float o[kCount] = {};

  // `moved`: m has.
  __device__ void add(const float (&p)[kCount], const float (&block_sum)[2], int block, float scale,
                      bool moved) {
    rows.add(block_sum);
    for (int i = 0; i < kCount; ++i) o[i] += p[i];
    if (moved) rows.template set_limits<kBlockN>((block + 1) * kBlockN, scale);
  }

  template <bool kFirst>
  __device__ void ordinary(float (&s)[kCount], int block, float scale) {
    float block_sum[2];
    if (!kFirst) rows.note_large(scale);
    rows.template raise<kFirst>(s, scale);
    rows.template exponentiate<true>(s, scale, block_sum);
    if (!kFirst) rows.rescale_output(o);
    add(s, block_sum, block, scale, kFirst || rows.rescale);
  }

  __device__ Event optimistic(float (&s)[kCount], const float* scores, int block, float scale) {
    float block_sum[2];
    Event event = kNone;
    rows.template exponentiate<false>(s, scale, block_sum);
    if (__any_sync(0xffffffffu, rows.exceeded(block_sum))) {
      const bool lost = __any_sync(0xffffffffu, rows.beyond_correction(block_sum));
      event = lost ? kRepeated : kCorrected;
      if (lost) {
        for (int i = 0; i < kCount; ++i) s[i] = scores[i];
        rows.raise_anyway(s, scale);
        rows.template exponentiate<true>(s, scale, block_sum);
      } else {
        rows.correct(s, block_sum, scale);
      }
      rows.multiply_rows(o);
    }
    add(s, block_sum, block, scale, event != kNone);
    return event;
  }
};

// For one warp: scores[block][lane][kCount]. out[lane][kCount]: the output, normalised.
// statistics[lane][2][3]: log-sum-exp, m as an exponent of 2, and 1 / sum. `optimistic`: all blocks
// but the first are exponentiated with the m so far; events[block]: what that took.
template <MaxPolicy kPolicy, int kCount>
__device__ void softmax(const float* scores, float* out, float* statistics, int* events,
                        int n_blocks, float scale, int optimistic) {
  const int lane = threadIdx.x;
  Softmax<kPolicy, kCount> state;
  for (int block = 0; block < n_blocks; ++block) {
    float s[kCount];
    const float* from = scores + (block * 32 + lane) * kCount;
    for (int i = 0; i < kCount; ++i) s[i] = from[i];
    Event event = kNone;
    if (block == 0) {
      state.template ordinary<true>(s, block, scale);
    } else if (optimistic) {
      event = state.optimistic(s, from, block, scale);
    } else {
      state.template ordinary<false>(s, block, scale);
    }
    if (lane == 0) events[block] = event;
  }
  float inverse[2], log_sum_exp[2];
  state.rows.finish(inverse, log_sum_exp, scale);
  for (int half = 0; half < 2; ++half) {
    float* of_row = statistics + lane * 6 + 3 * half;
    of_row[0] = log_sum_exp[half];
    of_row[1] = -state.rows.exponent(half, scale);
    of_row[2] = inverse[half];
  }
  for (int i = 0; i < kCount; ++i) out[lane * kCount + i] = state.o[i] * inverse[i / 2 % 2];
}

#define ENTRY(NAME, POLICY, COUNT)                                                                 \
  extern "C" __global__ void NAME(const float* scores, float* out, float* statistics, int* events, \
                                  int n_blocks, float scale, int optimistic) {                     \
    softmax<MaxPolicy::POLICY, COUNT>(scores, out, statistics, events, n_blocks, scale,            \
                                      optimistic);                                                 \
  }

ENTRY(exact_48, kExact, 24)
ENTRY(exact_128, kExact, 64)
ENTRY(lazy_48, kLazy, 24)
ENTRY(lazy_128, kLazy, 64)
ENTRY(optimistic_48, kOptimistic, 24)
ENTRY(optimistic_128, kOptimistic, 64)
