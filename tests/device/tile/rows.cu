// Reductions over the four threads that share a row.
#include "flash/tile/rows.cuh"

using namespace flash;

extern "C" __global__ void kernel(const float* in, float* largest, float* sum) {
  largest[threadIdx.x] = quad_max(in[threadIdx.x]);
  sum[threadIdx.x] = quad_sum(in[threadIdx.x]);
}
