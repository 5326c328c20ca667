// The matrix products of ptx/mma.cuh, one a launch.
#include "flash/ptx/mma.cuh"

using namespace flash;

// The registers of each lane: a[lane][4], b[lane][2], c[lane][4].
extern "C" __global__ void kernel(const uint32_t* a, const uint32_t* b, float* c, int which) {
  const int lane = threadIdx.x;
  uint32_t a_lane[4];
  float c_lane[4];
  for (int i = 0; i < 4; ++i) a_lane[i] = a[4 * lane + i];
  for (int i = 0; i < 4; ++i) c_lane[i] = c[4 * lane + i];
  const uint32_t b0 = b[2 * lane], b1 = b[2 * lane + 1];
  if (which == 0) ptx::mma_m16n8k16_f16(c_lane, a_lane, b0, b1);
  if (which == 1) ptx::mma_m16n8k16_bf16(c_lane, a_lane, b0, b1);
  if (which == 2) ptx::mma_m16n8k16<DType::kFP16>(c_lane, a_lane, b0, b1);
  if (which == 3) ptx::mma_m16n8k16<DType::kBF16>(c_lane, a_lane, b0, b1);
  for (int i = 0; i < 4; ++i) c[4 * lane + i] = c_lane[i];
}
