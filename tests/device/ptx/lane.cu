// The thread's number in its warp (ptx/lane.cuh).
#include "flash/ptx/lane.cuh"

using namespace flash;

extern "C" __global__ void kernel(uint32_t* out) { out[threadIdx.x] = ptx::lane_id(); }
