// Shared-memory barriers of ptx/mbarrier.cuh.
#include "flash/ptx/mbarrier.cuh"

using namespace flash;

__device__ uint32_t address_of(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void wait(uint32_t barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
}

// Warp 0 writes 32 words in each phase, warp 1 reads them and hands the buffer back. `arrivals`:
// the count that "full" is initialised with; 32 is right.
extern "C" __global__ void phases(const int* in, int* out, int n_phases, int arrivals) {
  __shared__ __align__(8) uint64_t barriers[2];
  __shared__ int words[32];
  const uint32_t full = address_of(&barriers[0]), empty = address_of(&barriers[1]);
  const int t = threadIdx.x;
  if (t == 0) {
    ptx::mbarrier_init(full, arrivals);
    ptx::mbarrier_init(empty, 32);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  for (int phase = 0; phase < n_phases; ++phase) {
    const uint32_t parity = phase % 2;
    if (t < 32) {
      wait(empty, parity ^ 1);
      words[t] = in[32 * phase + t];
      ptx::mbarrier_arrive(full);
    } else {
      wait(full, parity);
      out[32 * phase + t - 32] = words[63 - t];
      ptx::mbarrier_arrive(empty);
    }
  }
}

// One arrival, which announces bytes that no copy brings.
extern "C" __global__ void announced(int* out, int bytes) {
  __shared__ __align__(8) uint64_t memory;
  const uint32_t barrier = address_of(&memory);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, bytes);
  }
  __syncthreads();
  wait(barrier, 0);
  out[threadIdx.x] = 1;
}

// What try_wait answers for either parity, before the first phase completes and after it.
extern "C" __global__ void asked(int* out) {
  __shared__ __align__(8) uint64_t memory;
  const uint32_t barrier = address_of(&memory);
  ptx::mbarrier_init(barrier, 1);
  out[0] = ptx::mbarrier_try_wait(barrier, 1);
  out[1] = ptx::mbarrier_try_wait(barrier, 0);
  ptx::mbarrier_arrive(barrier);
  out[2] = ptx::mbarrier_try_wait(barrier, 1);
  out[3] = ptx::mbarrier_try_wait(barrier, 0);
}

extern "C" __global__ void tested(int* out) {
  __shared__ __align__(8) uint64_t memory;
  const uint32_t barrier = address_of(&memory);
  ptx::mbarrier_init(barrier, 1);
  out[0] = ptx::mbarrier_test_wait(barrier, 1);
  out[1] = ptx::mbarrier_test_wait(barrier, 0);
  ptx::mbarrier_arrive(barrier);
  out[2] = ptx::mbarrier_test_wait(barrier, 0);
}
