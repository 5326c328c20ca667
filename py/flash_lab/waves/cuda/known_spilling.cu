// Each thread works on 96 numbers and is allowed 32 registers: most of them live in local memory,
// and every turn of the loop fetches and stores them.
#include "known.h"

namespace {

constexpr int kNumbers = 96;
constexpr int kThreads = 1024;
constexpr int kRounds = 50;

}  // namespace

// Two blocks of 1024 threads fill the register file at 32 each.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    known_spilling(unsigned* sums, int rounds) {
  unsigned numbers[kNumbers];
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) numbers[i] = threadIdx.x + i;
  for (int round = 0; round < rounds; ++round) {
    // Each depends on another's last value: none can be computed anew, or left for later.
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      numbers[i] = numbers[i] * 3U + numbers[(i + 37) % kNumbers];
    }
  }
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) sum ^= numbers[i];
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

bool known::run_spilling(int sms) {
  const int blocks = sms * 2;
  const Buffer<unsigned> sums(size_t(blocks) * kThreads);
  known_spilling<<<blocks, kThreads>>>(sums.data(), kRounds);
  unsigned* const result = fetch(sums);
  bool right = true;
  for (int thread = 0; thread < kThreads; ++thread) {
    unsigned numbers[kNumbers], sum = 0;
    for (int i = 0; i < kNumbers; ++i) numbers[i] = thread + i;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kNumbers; ++i) {
        numbers[i] = numbers[i] * 3U + numbers[(i + 37) % kNumbers];
      }
    }
    for (const unsigned number : numbers) sum ^= number;
    for (int block = 0; block < blocks; ++block) {
      right = right && result[block * kThreads + thread] == sum;
    }
  }
  std::free(result);
  return right;
}
