// An inclusive scan that overwrites its neighbour's input before the neighbour has read it.
#define GRID 1
#define BLOCK 128
#include "planted.h"

KERNEL {
  __shared__ float values[BLOCK];
  const unsigned t = threadIdx.x;
  values[t] = in[t] + float(t);
  __syncthreads();
  for (unsigned offset = 1; offset < BLOCK; offset *= 2) {
    const float other = t >= offset ? values[t - offset] : 0.0f;  // planted
    FIX(__syncthreads();)
    values[t] += other;  // planted
    __syncthreads();
  }
  out[t] = values[t];
}
