// The loads of ptx/ldmatrix.cuh from rows anywhere in 4 KiB of shared memory.
#include "flash/ptx/ldmatrix.cuh"

using namespace flash;

constexpr int kFar = 1024;

// rows[lane]: byte offset of the row that the lane names. registers[lane][4]: what the lane
// receives.
extern "C" __global__ void kernel(const uint16_t* tile, const int* rows, uint32_t* registers,
                                  int which) {
  __shared__ __align__(128) uint16_t memory[2048];
  const int lane = threadIdx.x;
  for (int i = lane; i < 2048; i += 32) memory[i] = tile[i];
  __syncwarp();
  const uint32_t row = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + rows[lane];
  uint32_t r[4];
  if (which == 0) ptx::ldmatrix_x4<0>(row, r);
  if (which == 1) ptx::ldmatrix_x4<kFar>(row, r);
  if (which == 2) ptx::ldmatrix_x4_trans<0>(row, r);
  if (which == 3) ptx::ldmatrix_x4_trans<kFar>(row, r);
  for (int i = 0; i < 4; ++i) registers[4 * lane + i] = r[i];
}
