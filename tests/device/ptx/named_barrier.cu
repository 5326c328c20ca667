// The barriers of ptx/named_barrier.cuh.
#include "flash/ptx/named_barrier.cuh"

using namespace flash;

// Two halves of 64 threads, each with a barrier of its own: words are exchanged with t ^ partner.
extern "C" __global__ void exchange(const int* in, int* out, int id, int partner) {
  __shared__ int words[128];
  const int t = threadIdx.x;
  words[t] = in[t];
  ptx::bar_sync(id + t / 64, 64);
  out[t] = words[t ^ partner];
}

// The first half writes, arrives and goes on; the second half waits and reads. `late`: the first
// half writes again after it has arrived.
extern "C" __global__ void hand_over(const int* in, int* out, int id, int late) {
  __shared__ int words[64];
  const int t = threadIdx.x;
  if (t < 64) {
    words[t] = in[t];
    ptx::bar_arrive(id, 128);
    if (late) words[t] = 0;
  } else {
    ptx::bar_sync(id, 128);
    out[t - 64] = words[127 - t];
  }
}

// Every half votes for itself, and hands words over by the same barrier.
extern "C" __global__ void vote(const int* mine, int* any, int* out, int id) {
  __shared__ int words[128];
  const int t = threadIdx.x;
  words[t] = t;
  any[t] = ptx::bar_red_or(id + t / 64, 64, mine[t] != 0);
  out[t] = words[t ^ 63];
}
