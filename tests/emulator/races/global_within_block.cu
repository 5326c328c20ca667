// Global memory as a place to exchange values within a block.
#define GRID 1
#define BLOCK 64
#include "planted.h"

KERNEL {
  const unsigned t = threadIdx.x;
  out[t] = in[t] + float(t);  // planted
  FIX(__syncthreads();)
  out[1024 + t] = out[t ^ 32];  // planted
}
