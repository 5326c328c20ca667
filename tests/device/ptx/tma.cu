// Boxes of five-dimensional tensors, loaded and stored: ptx/tma.cuh, and the fence of
// ptx/fence.cuh between ordinary writes and the copy engine.
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/tma.cuh"

using namespace flash;

struct alignas(64) Map {
  unsigned char opaque[128];
};
struct Place {
  int c[5];
};

// out: what was brought to L2 before.
extern "C" __global__ void ahead(const uint32_t* in, uint32_t* out) {
  if (threadIdx.x == 0) ptx::prefetch_l2<4 * 32>(in);
  out[threadIdx.x] = in[threadIdx.x];
}

// out: the box as it lies in shared memory. `announced`: how many bytes the barrier waits for.
// `last`: evict last, else evict first.
extern "C" __global__ void load(const __grid_constant__ Map map, unsigned char* out, Place at,
                                int bytes, int announced, int last) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) uint64_t barrier_memory;
  const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier_memory));
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&map);
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, announced);
    ptx::tma_load_5d(static_cast<uint32_t>(__cvta_generic_to_shared(memory)), &map, barrier,
                     at.c[0], at.c[1], at.c[2], at.c[3], at.c[4],
                     last ? ptx::kEvictLast : ptx::kEvictFirst);
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait(barrier, 0)) {
  }
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = memory[i];
}

// What is waited for before the memory is written again.
enum Wait : int { kAll, kNone, kOneStore };

// Stores the box to `at` and to `then`, and clears the memory. Without the fence, or without
// waiting for both stores, there is a race.
extern "C" __global__ void store(const __grid_constant__ Map map, const unsigned char* in, Place at,
                                 Place then, int bytes, int fenced, Wait wait) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t source = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) memory[i] = in[i];
  if (fenced) ptx::fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tma_store_5d(&map, source, at.c[0], at.c[1], at.c[2], at.c[3], at.c[4]);
    ptx::tma_store_commit();
    ptx::tma_store_5d(&map, source, then.c[0], then.c[1], then.c[2], then.c[3], then.c[4]);
    ptx::tma_store_commit();
    if (wait == kAll) ptx::tma_store_wait_read<0>();
    if (wait == kOneStore) ptx::tma_store_wait_read<1>();
  }
  __syncthreads();
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) memory[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) ptx::tma_store_wait_read<0>();
}
