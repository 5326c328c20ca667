// Thread blocks of a cluster, which run at the same time and reach each other's shared memory
// (PTX ISA 5.1, sm_90 and later).
//
// A shared address of this thread block, as such, names this block's memory; peer_address() makes
// of it the same place of another block.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// %cluster_ctarank: this thread block's number in the cluster.
FLASH_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// mapa.shared::cluster.u32 (PTX ISA 9.7.9.23): what `address`, of this thread block's shared
// memory, is in that of block `rank`.
FLASH_DEVICE uint32_t peer_address(uint32_t address, uint32_t rank) {
  uint32_t found;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(found) : "r"(address), "r"(rank));
  return found;
}

// barrier.cluster.arrive.release.aligned and barrier.cluster.wait.acquire.aligned (PTX ISA
// 9.7.13.4): all threads of the cluster that have not ended have come so far. By whole warps.
FLASH_DEVICE void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// mbarrier.arrive.shared::cluster.b64: at a barrier of another thread block. `barrier`: a
// peer_address. That block may then overwrite, by the copy engine, what wgmma or the copy engine
// has read or written here before; of this thread's ordinary accesses it knows nothing
// (.release.cluster would tell, and wait for all that the multiprocessor has in flight).
FLASH_DEVICE void mbarrier_arrive_at_peer(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// The same, .release.cluster: who waits there with acquire.cluster sees what this thread has seen.
FLASH_DEVICE void mbarrier_release_at_peer(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(barrier)
               : "memory");
}

// cp.async.bulk.shared::cluster.shared::cta (PTX ISA 9.7.9.25.4.1): the copy engine brings `bytes`,
// a multiple of 16, of this thread block's shared memory to another's. `dst` and `barrier`, which
// is told of every byte that lands: peer_addresses of the same block.
FLASH_DEVICE void bulk_copy_to_peer(uint32_t dst, uint32_t src, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];\n" ::"r"(dst),
      "r"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace flash::ptx
