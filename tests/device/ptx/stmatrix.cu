// The stores of ptx/stmatrix.cuh to rows anywhere in 2 KiB of shared memory, zeros elsewhere.
#include "flash/ptx/stmatrix.cuh"

using namespace flash;

constexpr int kFar = 1024;  // an offset that becomes part of the instruction

extern "C" __global__ void kernel(const uint32_t* registers, const int* rows, uint16_t* tile,
                                  int transposed, int far) {
  __shared__ __align__(128) uint16_t memory[1024];
  const int lane = threadIdx.x;
  for (int i = lane; i < 1024; i += 32) memory[i] = 0;
  __syncwarp();
  const uint32_t row = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + rows[lane];
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = registers[4 * lane + i];
  if (!transposed) {
    ptx::stmatrix_x4(row, r[0], r[1], r[2], r[3]);
  } else if (far) {
    ptx::stmatrix_x4_trans<kFar>(row, r);
  } else {
    ptx::stmatrix_x4_trans<0>(row, r);
  }
  __syncwarp();
  for (int i = lane; i < 1024; i += 32) tile[i] = memory[i];
}
