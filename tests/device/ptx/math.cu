// The functions of ptx/math.cuh on arrays, one a launch.
#include "flash/ptx/math.cuh"

using namespace flash;

extern "C" __global__ void kernel(const float* a, const float* b, const float* c, float* out,
                                  int which) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (which == 0) out[i] = ptx::ex2(a[i]);
  if (which == 1) out[i] = ptx::lg2(a[i]);
  if (which == 2) out[i] = ptx::rcp(a[i]);
  if (which == 3) out[i] = ptx::mul_rn(a[i], b[i]) + c[i];  // a plain product would be fused
  if (which == 4) out[i] = ptx::fma_rn(a[i], b[i], c[i]);
}
