// Online softmax over given blocks of scores. In place of P V, the exponentials of every block are
// added up as they are.
#include "flash/sm80/forward/softmax.cuh"

using namespace flash;
using namespace flash::sm80;

// For one warp: scores[block][lane][kMTiles][kSTiles][4]. out[lane][kMTiles][kSTiles][4]: the
// output, normalised. statistics[lane][kMTiles][2][3]: log-sum-exp, the maximum that is kept, and
// the thread's sum.
template <int kMTiles, int kSTiles, bool kFolded, bool kMasked>
__device__ void softmax(const float* scores, float* out, float* statistics, int n_blocks,
                        float scale, int peeled) {
  constexpr int kOfLane = kMTiles * kSTiles * 4;
  const int lane = threadIdx.x;
  OnlineSoftmax<kMTiles, kFolded> softmax(scale);
  float o[kMTiles][kSTiles][4] = {};
  for (int block = 0; block < n_blocks; ++block) {
    float s[kMTiles][kSTiles][4];
    for (int i = 0; i < kOfLane; ++i) (&s[0][0][0])[i] = scores[(block * 32 + lane) * kOfLane + i];
    if (peeled && block == 0) {
      softmax.template update<true, kMasked>(s, o, block);
    } else {
      softmax.template update<false, kMasked>(s, o, block);
    }
    for (int i = 0; i < kOfLane; ++i) (&o[0][0][0])[i] += (&s[0][0][0])[i];
  }
  float* of_lane = statistics + lane * kMTiles * 6;
  for (int i = 0; i < 2 * kMTiles; ++i) {
    of_lane[3 * i + 1] = softmax.row_max[i / 2][i % 2];
    of_lane[3 * i + 2] = softmax.row_sum[i / 2][i % 2];
  }
  float inverse[kMTiles][2], log_sum_exp[kMTiles][2];
  softmax.finish(inverse, log_sum_exp);
  for (int i = 0; i < 2 * kMTiles; ++i) of_lane[3 * i] = log_sum_exp[i / 2][i % 2];
  for (int i = 0; i < kOfLane; ++i) {
    const int m = i / (kSTiles * 4), half = i / 2 % 2;
    out[lane * kOfLane + i] = (&o[0][0][0])[i] * inverse[m][half];
  }
}

template <int kMTiles, int kSTiles, bool kFolded>
__device__ void choose(const float* scores, float* out, float* statistics, int n_blocks,
                       float scale, int peeled, int masked) {
  masked
      ? softmax<kMTiles, kSTiles, kFolded, true>(scores, out, statistics, n_blocks, scale, peeled)
      : softmax<kMTiles, kSTiles, kFolded, false>(scores, out, statistics, n_blocks, scale, peeled);
}

#define ENTRY(NAME, M_TILES, S_TILES)                                                              \
  extern "C" __global__ void NAME(const float* scores, float* out, float* statistics,              \
                                  int n_blocks, float scale, int peeled, int folded, int masked) { \
    folded                                                                                         \
        ? choose<M_TILES, S_TILES, true>(scores, out, statistics, n_blocks, scale, peeled, masked) \
        : choose<M_TILES, S_TILES, false>(scores, out, statistics, n_blocks, scale, peeled,        \
                                          masked);                                                 \
  }

ENTRY(m1s4, 1, 4)
ENTRY(m1s16, 1, 16)
ENTRY(m2s8, 2, 8)
