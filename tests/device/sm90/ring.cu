// Rings of buffers that one warp fills and another empties.
#include "flash/ptx/mbarrier.cuh"
#include "flash/sm90/ring.cuh"

using namespace flash;
using namespace flash::sm90;

// out[step][4]: buffer and parity, then those before the next.
template <int kBuffers>
__device__ void positions(int* out, int n_steps) {
  RingPosition<kBuffers> ring;
  for (int step = 0; step < n_steps; ++step) {
    out[4 * step] = ring.buffer;
    out[4 * step + 1] = ring.parity;
    ring.advance();
    out[4 * step + 2] = ring.before().buffer;
    out[4 * step + 3] = ring.before().parity;
  }
}

// Words handed from warp 0 to warp 1, 32 a step, through the buffers of the ring.
template <int kBuffers>
__device__ void hand_over(const int* in, int* out, int n_steps) {
  __shared__ __align__(8) uint64_t barriers[2 * kBuffers];
  __shared__ int words[kBuffers][32];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
  const auto full = [&](int buffer) { return base + 16 * buffer; };
  const auto empty = [&](int buffer) { return base + 16 * buffer + 8; };
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kBuffers; ++i) ptx::mbarrier_init(base + 8 * i, 32);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  RingPosition<kBuffers> ring;
  for (int step = 0; step < n_steps; ++step, ring.advance()) {
    if (warp == 0) {
      wait_phase(empty(ring.buffer), ring.parity ^ 1);
      words[ring.buffer][lane] = in[32 * step + lane];
      ptx::mbarrier_arrive(full(ring.buffer));
    } else {
      wait_phase(full(ring.buffer), ring.parity);
      out[32 * step + lane] = words[ring.buffer][31 - lane];
      ptx::mbarrier_arrive(empty(ring.buffer));
    }
  }
}

extern "C" __global__ void where(int* out, int n_steps, int buffers) {
  if (buffers == 1) positions<1>(out, n_steps);
  if (buffers == 2) positions<2>(out, n_steps);
  if (buffers == 3) positions<3>(out, n_steps);
  if (buffers == 4) positions<4>(out, n_steps);
}

extern "C" __global__ void handed(const int* in, int* out, int n_steps, int buffers) {
  if (buffers == 1) hand_over<1>(in, out, n_steps);
  if (buffers == 2) hand_over<2>(in, out, n_steps);
  if (buffers == 3) hand_over<3>(in, out, n_steps);
  if (buffers == 4) hand_over<4>(in, out, n_steps);
}
