// Each block reads what its neighbour writes, in global memory.
#define GRID 4
#define BLOCK 32
#include "planted.h"

KERNEL {
  const unsigned own = blockIdx.x * BLOCK + threadIdx.x;
  const unsigned other = CHOOSE((blockIdx.x + 1) % GRID * BLOCK + threadIdx.x, own);
  out[own] = in[own] + float(own);   // planted
  out[2048 + own] = out[other] * 2;  // planted
}
