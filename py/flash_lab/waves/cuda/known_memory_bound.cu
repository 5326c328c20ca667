// A copy of far more than fits into any L2 cache: every byte crosses device memory once each way.
#include "known.h"

namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr int kThreads = 256;

}  // namespace

extern "C" __global__ void known_memory_bound(const uint4* __restrict__ from,
                                              uint4* __restrict__ to, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

bool known::run_memory_bound(int sms) {
  const Buffer<uint4> from(kBytes / sizeof(uint4)), to(kBytes / sizeof(uint4));
  KNOWN_CHECK(cudaMemset(from.data(), 0x5a, kBytes));
  known_memory_bound<<<sms * 32, kThreads>>>(from.data(), to.data(), to.count());
  uint4* const result = fetch(to);
  bool right = true;
  for (size_t i = 0; i < to.count(); ++i) right = right && result[i].x == 0x5a5a5a5aU;
  std::free(result);
  return right;
}
