// Words from one thread block of a cluster to another, by way of one place (ptx/cluster.cuh).
#include "flash/ptx/cluster.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"

using namespace flash;

// A thread of the first block hands words on to one of the second, by way of the same place, which
// writes them down: out[i] = 3 i. The place is free again when the second has said so.
extern "C" __global__ void __cluster_dims__(2, 1, 1) hand_on(uint32_t* out, int n) {
  __shared__ __align__(16) uint32_t words[4];
  __shared__ uint64_t barriers[2];
  const uint32_t place = ptx::shared_address(words);
  const uint32_t full = ptx::shared_address(barriers), empty = full + 8;
  const uint32_t rank = ptx::cluster_rank(), peer = rank ^ 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(empty, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  for (int i = 0; threadIdx.x == 0 && i < n; ++i) {
    const uint32_t parity = i % 2;
    if (rank == 0) {
      while (!ptx::mbarrier_try_acquire(empty, parity)) {
      }
      ptx::st_shared_16<0>(place, {{3u * i, 0, 0, 0}});
      ptx::fence_proxy_async_shared();
      ptx::bulk_copy_to_peer(ptx::peer_address(place, peer), place, 16,
                             ptx::peer_address(full, peer));
    } else {
      ptx::mbarrier_arrive_expect_tx(full, 16);
      ptx::mbarrier_release_at_peer(ptx::peer_address(empty, peer));
      while (!ptx::mbarrier_try_wait(full, parity)) {
      }
      out[i] = ptx::ld_shared_16<0>(place).word[0];
    }
  }
  ptx::cluster_sync();
}
