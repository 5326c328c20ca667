// The lanes of a warp read words of shared memory that are 32 words apart: all in one bank, so that
// a load takes 32 turns instead of one.
#include "known.h"

namespace {

constexpr int kWords = 32 * 32;
constexpr int kThreads = 256;
constexpr int kRounds = 64;

}  // namespace

extern "C" __global__ void known_bank_conflicts(unsigned* sums, int rounds) {
  __shared__ unsigned tile[kWords];
  for (int i = threadIdx.x; i < kWords; i += kThreads) tile[i] = i % 32;
  __syncthreads();
  // Volatile: every load is one of the program's.
  const volatile unsigned* const column = tile + threadIdx.x % 32 * 32;
  unsigned sum = 0;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += column[i];
  }
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

bool known::run_bank_conflicts(int sms) {
  const int blocks = sms * 8;  // as many as an SM holds, once
  const Buffer<unsigned> sums(size_t(blocks) * kThreads);
  known_bank_conflicts<<<blocks, kThreads>>>(sums.data(), kRounds);
  unsigned* const result = fetch(sums);
  bool right = true;
  for (size_t i = 0; i < sums.count(); ++i) right = right && result[i] == kRounds * 496U;
  std::free(result);
  return right;
}
