// Boxes that one thread block of a cluster loads for all (tma_multicast_5d of ptx/tma.cuh).
#include "flash/ptx/cluster.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/tma.cuh"

using namespace flash;

struct alignas(64) Map {
  unsigned char opaque[128];
};

__device__ void wait(uint32_t barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
}

// In each phase one of a cluster's two blocks brings a box of its cluster's row of `in` to those
// set in `blocks`, and each stores what it got in its own row of `out`. The memory is free again
// when the stores of both have read it.
extern "C" __global__ void __cluster_dims__(2, 1, 1)
    share(const __grid_constant__ Map in, const __grid_constant__ Map out, int n_phases, int bytes,
          int blocks) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t box = ptx::shared_address(memory), full = box + bytes, empty = full + 8;
  const uint32_t rank = ptx::cluster_rank();
  const int cluster = blockIdx.x / 2;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(empty, 2);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  for (int phase = 0; phase < n_phases; ++phase) {
    const uint32_t parity = phase % 2;
    if (threadIdx.x == 0) {
      wait(empty, parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, bytes);
      if (rank == phase % 2) {
        ptx::tma_multicast_5d(box, &in, full, static_cast<uint16_t>(blocks), 0, 0, 0, phase,
                              cluster, ptx::kEvictLast);
      }
    } else if (threadIdx.x == 32) {
      wait(full, parity);
      ptx::tma_store_5d(&out, box, 0, 0, 0, phase, blockIdx.x);
      ptx::tma_store_commit();
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(empty);
      ptx::mbarrier_arrive_at_peer(ptx::peer_address(empty, rank ^ 1));
    }
  }
  __syncwarp();
  ptx::cluster_sync();
}
