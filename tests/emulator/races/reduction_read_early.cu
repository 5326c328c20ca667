// The barrier between the warps' partial sums and their reader is missing.
#define GRID 2
#define BLOCK 128
#include "planted.h"

KERNEL {
  __shared__ float partial[BLOCK / 32];
  const unsigned t = threadIdx.x;
  float sum = in[blockIdx.x * BLOCK + t] + float(t);
  for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
  if (t % 32 == 0) partial[t / 32] = sum;  // planted
  FIX(__syncthreads();)
  if (t == 0) {
    for (int i = 1; i < BLOCK / 32; ++i) {
      sum += partial[i];  // planted
    }
    out[blockIdx.x] = sum;
  }
}
