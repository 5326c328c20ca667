// Two buffers and one barrier per step: the next tile goes where the present one is read.
#define GRID 1
#define BLOCK 64
#include "planted.h"

KERNEL {
  __shared__ float tile[2][BLOCK];
  const unsigned t = threadIdx.x;
  float sum = 0;
  tile[0][t] = in[t];
  tile[1][t] = in[t];
  for (int i = 0; i < 4; ++i) {
    __syncthreads();
    const float next = in[64 * (i + 1) + t] + float(i);
    sum += tile[i & 1][t ^ 32];              // planted
    tile[(i + CHOOSE(0, 1)) & 1][t] = next;  // planted
  }
  out[t] = sum;
}
