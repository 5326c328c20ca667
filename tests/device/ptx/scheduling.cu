// What the hints of ptx/scheduling.cuh keep the compiler from doing.
#include "flash/ptx/scheduling.cuh"

using namespace flash;

constexpr uint32_t kFactor = 1000003;

// The compiler computes the product itself, unless it has to forget the factor.
extern "C" __global__ void remembers(uint32_t* out) {
  uint32_t value = 5;
  out[threadIdx.x] = value * kFactor;
}
extern "C" __global__ void forgets(uint32_t* out) {
  uint32_t value = 5;
  ptx::forget(value);
  out[threadIdx.x] = value * kFactor;
}

extern "C" __global__ void hides(uint32_t* out) {
  const uint32_t value = 5;
  out[threadIdx.x] = ptx::hidden(value) * kFactor;
}

// The compiler drops a value that nothing uses, unless it is needed here.
extern "C" __global__ void drops(const uint32_t* in, uint32_t* out) {
  [[maybe_unused]] const uint32_t value = in[threadIdx.x] * kFactor;
  out[threadIdx.x] = in[threadIdx.x];
}
extern "C" __global__ void keeps(const uint32_t* in, uint32_t* out) {
  const uint32_t value = in[threadIdx.x] * kFactor;
  ptx::needed_here(value);
  out[threadIdx.x] = in[threadIdx.x];
}

extern "C" __global__ void fences(const uint32_t* in, uint32_t* out) {
  const uint32_t value = in[threadIdx.x];
  ptx::schedule_fence();
  out[threadIdx.x] = value + 1;
}
