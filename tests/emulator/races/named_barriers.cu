// A producer warp and a consumer warp: barrier 1 says that the tile is full, barrier 2 that it is
// empty. The consumer says so before it has read.
#define GRID 1
#define BLOCK 64
#include "planted.h"

constexpr bool kTooEarly = CHOOSE(true, false);

KERNEL {
  __shared__ float tile[32];
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 4; ++i) {
      if (i > 0) barrier_sync<2, BLOCK>();
      tile[lane] = in[32 * i + lane] + float(i);  // planted
      barrier_arrive<1, BLOCK>();
    }
    return;
  }
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    barrier_sync<1, BLOCK>();
    if (kTooEarly && i < 3) barrier_arrive<2, BLOCK>();
    sum += tile[lane ^ 3];  // planted
    if (!kTooEarly && i < 3) barrier_arrive<2, BLOCK>();
  }
  out[lane] = sum;
}
