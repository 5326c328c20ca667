// Who is elected (ptx/elect.cuh).
#include "flash/ptx/elect.cuh"

using namespace flash;

extern "C" __global__ void kernel(int* out) { out[threadIdx.x] = ptx::elect_one() ? 1 : 0; }
