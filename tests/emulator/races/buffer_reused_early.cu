// One buffer: the next copy starts before everybody has read the last.
#define GRID 1
#define BLOCK 64
#include <cuda_pipeline.h>

#include "planted.h"

KERNEL {
  __shared__ float4 tile[BLOCK];
  const unsigned t = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    __pipeline_memcpy_async(&tile[t], in + 256 * i + 4 * t, 16);  // planted
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[t ^ 33].x;  // planted
    FIX(__syncthreads();)
  }
  out[t] = sum;
}
