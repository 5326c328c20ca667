// A barrier alone: it orders threads, not the copies that they have started.
#define GRID 1
#define BLOCK 64
#include <cuda_pipeline.h>

#include "planted.h"

KERNEL {
  __shared__ float4 tile[BLOCK];
  const unsigned t = threadIdx.x;
  __pipeline_memcpy_async(&tile[t], in + 4 * t, 16);  // planted
  __pipeline_commit();
  FIX(__pipeline_wait_prior(0);)
  __syncthreads();
  out[t] = tile[t ^ 33].x;  // planted
  __pipeline_wait_prior(0);
}
