// Warps that do nothing but multiply matrices whose operands stay in registers. Eight independent
// accumulators a warp hide the latency of the instruction.
#include "flash/ptx/mma.cuh"
#include "known.h"

namespace {

constexpr int kThreads = 256;
constexpr int kAccumulators = 8;
constexpr int kRounds = 4096;
constexpr unsigned kOnes = 0x3c003c00;  // two ones, in fp16

}  // namespace

extern "C" __global__ void known_tensor_bound(float* sums, int rounds, unsigned ones) {
  float c[kAccumulators][4] = {};
  const uint32_t a[4] = {ones, ones, ones, ones};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) {
      flash::ptx::mma_m16n8k16_f16(c[i], a, ones, ones);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

bool known::run_tensor_bound(int sms) {
  const int blocks = sms * 2;
  const Buffer<float> sums(size_t(blocks) * kThreads);
  known_tensor_bound<<<blocks, kThreads>>>(sums.data(), kRounds, kOnes);
  float* const result = fetch(sums);
  bool right = true;
  // Every element of c is a sum of 16 ones a round; all of it is exact in fp32.
  const float expected = 16.0F * kRounds * kAccumulators * 4;
  for (size_t i = 0; i < sums.count(); ++i) right = right && result[i] == expected;
  std::free(result);
  return right;
}
