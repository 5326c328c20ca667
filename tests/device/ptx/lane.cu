// The thread's number in its warp, and the warp's in its block (ptx/lane.cuh).
#include "flash/ptx/lane.cuh"

using namespace flash;

extern "C" __global__ void kernel(uint32_t* out) { out[threadIdx.x] = ptx::lane_id(); }

extern "C" __global__ void warps(uint32_t* out) { out[threadIdx.x] = ptx::warp_of_block(); }
