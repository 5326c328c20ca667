// A kernel that waits for those before it (ptx/grid_dependency.cuh), and one that reads too early.
#include "flash/ptx/grid_dependency.cuh"

using namespace flash;

extern "C" __global__ void waits(const uint32_t* in, uint32_t* out) {
  ptx::await_grids_before();
  ptx::let_next_grid_begin();
  out[threadIdx.x] = in[threadIdx.x] + 1;
}

extern "C" __global__ void reads_too_early(const uint32_t* in, uint32_t* out) {
  const uint32_t value = *const_cast<const volatile uint32_t*>(in + threadIdx.x);
  ptx::await_grids_before();
  out[threadIdx.x] = value + 1;
}
