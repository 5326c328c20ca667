// A block of two warps that claims nearly all shared memory of an SM, so that no other block fits
// beside it, and that waits for one load after the other: nothing is there to fill the time.
#include "known.h"

namespace {

constexpr int kThreads = 64;
constexpr int kWords = 1 << 16;  // 256 KiB: in L2, more than L1 has left
constexpr int kSteps = 2000;
constexpr unsigned kStride = 24631;  // odd, so the walk reaches every word

}  // namespace

extern "C" __global__ void known_low_occupancy(const unsigned* __restrict__ next, unsigned* ends,
                                               int steps) {
  extern __shared__ unsigned claimed[];
  unsigned at = (blockIdx.x * kThreads + threadIdx.x) % kWords;
  for (int step = 0; step < steps; ++step) at = __ldcg(next + at);
  claimed[threadIdx.x] = at;  // what is claimed is used
  ends[blockIdx.x * kThreads + threadIdx.x] = claimed[threadIdx.x];
}

bool known::run_low_occupancy(int sms) {
  int claim = 0;
  KNOWN_CHECK(cudaDeviceGetAttribute(&claim, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  KNOWN_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(known_low_occupancy),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, claim));
  const int blocks = sms * 4;
  const Buffer<unsigned> next(kWords), ends(size_t(blocks) * kThreads);
  unsigned* const table = static_cast<unsigned*>(std::malloc(kWords * sizeof(unsigned)));
  for (unsigned i = 0; i < kWords; ++i) table[i] = (i + kStride) % kWords;
  KNOWN_CHECK(cudaMemcpy(next.data(), table, kWords * sizeof(unsigned), cudaMemcpyHostToDevice));
  known_low_occupancy<<<blocks, kThreads, claim>>>(next.data(), ends.data(), kSteps);
  unsigned* const result = fetch(ends);
  bool right = true;
  for (size_t i = 0; i < ends.count(); ++i) {
    right = right && result[i] == (unsigned(i) + kSteps * kStride) % kWords;
  }
  std::free(table);
  std::free(result);
  return right;
}
