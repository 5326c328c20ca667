// Registers given up and taken (ptx/setmaxnreg.cuh). At the start each of 384 threads has 168.
#include "flash/ptx/setmaxnreg.cuh"

using namespace flash;

template <int kLess, int kMore>
__device__ void change(int* out) {
  if (threadIdx.x / 128 == 0) {
    ptx::setmaxnreg_dec<kLess>();
  } else {
    ptx::setmaxnreg_inc<kMore>();
  }
  out[threadIdx.x] = 1;
}

extern "C" __global__ void __launch_bounds__(384, 1) kernel(int* out, int which) {
  if (which == 0) change<40, 232>(out);
  if (which == 1) change<24, 240>(out);
  if (which == 2) change<40, 240>(out);  // 16 too many
}
