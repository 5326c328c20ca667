// The copies of ptx/cp_async.cuh, and the waits for them.
#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/memory.cuh"

using namespace flash;

constexpr int kFar = 1024;

template <int kOffset>
__device__ void copy(uint32_t dst, const char* src, int which, int src_bytes) {
  if (which == 0) ptx::cp_async_16<kOffset>(dst, src);
  if (which == 1) ptx::cp_async_ca_16<kOffset>(dst, src);
  if (which == 2) ptx::cp_async_16_zero_fill<kOffset>(dst, src, src_bytes);
  if (which == 3) {  // two halves, of which each has its own number of bytes
    ptx::cp_async_8_zero_fill<kOffset>(dst, src, min(src_bytes, 8));
    ptx::cp_async_8_zero_fill<kOffset>(dst + 8, src + 8, max(src_bytes - 8, 0));
  }
  if (which == 4) ptx::cp_async_16_zero_fill_once<kOffset>(dst, src, src_bytes);
}

// Each of 64 threads copies 16 bytes and hands them to its neighbour. `away`: an offset added to
// the source address.
extern "C" __global__ void copies(const char* in, uint4* out, int which, int src_bytes, int far,
                                  long long away) {
  __shared__ __align__(128) char memory[2048];
  const int t = threadIdx.x;
  const uint32_t dst = ptx::shared_address(memory) + 16 * t;
  const char* src = in + 16 * t + away;
  far ? copy<kFar>(dst, src, which, src_bytes) : copy<0>(dst, src, which, src_bytes);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  out[t] = *reinterpret_cast<const uint4*>(memory + (far ? kFar : 0) + 16 * (t ^ 1));
}

// Issues three groups of one copy each, waits until at most kPending are in flight, and reads one.
template <int kPending>
__device__ void in_flight(const uint4* in, uint4* out, int group) {
  __shared__ __align__(128) uint4 memory[3][32];
  const int t = threadIdx.x;
  for (int i = 0; i < 3; ++i) {
    ptx::cp_async_16<0>(ptx::shared_address(&memory[i][t]), &in[32 * i + t]);
    ptx::cp_async_commit_group();
  }
  ptx::cp_async_wait_group<kPending>();
  __syncthreads();
  out[t] = memory[group][t ^ 1];
  ptx::cp_async_wait_group<0>();
}

extern "C" __global__ void groups(const uint4* in, uint4* out, int group, int pending) {
  if (pending == 0) in_flight<0>(in, out, group);
  if (pending == 1) in_flight<1>(in, out, group);
  if (pending == 2) in_flight<2>(in, out, group);
}
