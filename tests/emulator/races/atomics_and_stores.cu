// A counter that one thread resets while others count already.
#define GRID 1
#define BLOCK 128
#include "planted.h"

KERNEL {
  __shared__ unsigned counter;
  const unsigned t = threadIdx.x;
  if (t == 0) counter = 0;  // planted
  FIX(__syncthreads();)
  if (in[t] >= 0.0f) atomicAdd(&counter, 1u + t);  // planted
  __syncthreads();
  out[t] = float(counter);
}
