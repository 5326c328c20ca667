// A warp turns a row through shared memory: its lanes need not run in step.
#define GRID 1
#define BLOCK 64
#include "planted.h"

KERNEL {
  __shared__ float staged[BLOCK];
  const unsigned t = threadIdx.x;
  staged[t] = in[t] + float(t);  // planted
  FIX(__syncwarp();)
  out[t] = staged[t ^ 5];  // planted
}
