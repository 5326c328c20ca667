// A pipeline of three stages that waits for all but two groups, where the tile it reads is the last
// but one.
#define GRID 1
#define BLOCK 64
#include <cuda_pipeline.h>

#include "planted.h"

KERNEL {
  __shared__ float4 tile[3][BLOCK];
  const unsigned t = threadIdx.x;
  float sum = 0;
  __pipeline_memcpy_async(&tile[0][t], in + 4 * t, 16);  // planted
  __pipeline_commit();
  for (int i = 0; i < 6; ++i) {
    if (i < 5) {
      __pipeline_memcpy_async(&tile[(i + 1) % 3][t], in + 256 * i + 4 * t, 16);  // planted
    }
    __pipeline_commit();
    __pipeline_wait_prior(CHOOSE(2, 1));
    __syncthreads();
    sum += tile[i % 3][t ^ 40].x;  // planted
  }
  __pipeline_wait_prior(0);
  out[t] = sum;
}
