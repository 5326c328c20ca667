// Sums in global memory: ptx/reduce.cuh.
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/ptx/tma.cuh"

using namespace flash;

// Every thread adds its four numbers to the sums of place[t].
extern "C" __global__ void vectors(const float* numbers, const int* place, float* sums) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const float* mine = numbers + 4 * t;
  ptx::red_add_f32x4(sums + 4 * place[t], mine[0], mine[1], mine[2], mine[3]);
}

// The same with one number.
extern "C" __global__ void numbers(const float* numbers, const int* place, float* sums) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  ptx::red_add_f32(sums + place[t], numbers[t]);
}

// Every block adds its `count` numbers to the same sums, through shared memory.
extern "C" __global__ void bulk(const float* numbers, float* sums, int count, int fenced) {
  extern __shared__ __align__(128) float memory[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    memory[i] = numbers[blockIdx.x * count + i];
  }
  if (fenced) ptx::fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::bulk_reduce_add_f32(sums, ptx::shared_address(memory), 4 * count);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }
}

// The copy engine stores the block's numbers behind what a thread has written there, and a thread
// reads them back: when they are written, or as soon as they are read.
extern "C" __global__ void stored(const float* numbers, float* to, int count, int fenced,
                                  int waits) {
  extern __shared__ __align__(128) float memory[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) memory[i] = numbers[i];
  ptx::fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x != 0) return;
  to[0] = -1.0f;
  if (fenced) ptx::fence_proxy_async_global();
  ptx::bulk_store(to, ptx::shared_address(memory), 4 * count);
  ptx::tma_store_commit();
  if (waits) ptx::tma_store_wait<0>();
  to[count] = to[count - 1];
  ptx::tma_store_wait_read<0>();
}

// Numbers come the other way, and every thread reads some: behind the barrier, or as soon as they
// are on their way.
extern "C" __global__ void brought(const float* numbers, float* to, int count, int waits) {
  extern __shared__ __align__(128) float memory[];
  const uint32_t barrier = ptx::shared_address(memory + count);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, 4 * count);
    ptx::bulk_load(ptx::shared_address(memory), numbers, 4 * count, barrier);
  }
  __syncthreads();
  while (waits && !ptx::mbarrier_try_wait(barrier, 0)) {
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = memory[i];
}
