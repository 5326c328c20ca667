// Forward attention for sm_90a: warp-specialised, TMA, wgmma, online softmax in fp32.
//
// Warpgroup 0 produces: one thread has the copy engine load Q, K and V tiles into rings of shared
// memory. The other warpgroups consume: each owns 64 query rows of the block's tile. Barriers in
// shared memory hand tiles over ("full") and back ("empty"). The grid is persistent: a block goes
// through its share of the tiles, and loads for the next tile are in flight during the end of this
// one.
#pragma once

#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90/forward/consumer.cuh"
#include "flash/sm90/forward/producer.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
FLASH_DEVICE void init_barriers(const SharedStorage<kConfig>& smem) {
  constexpr int kWarps = HopperForwardKernelConfig::kGroupWarps;
  for (int buffer = 0; buffer < kConfig.n_q_buffers; ++buffer) {
    for (int group = 0; group < kConfig.n_mma_groups; ++group) {
      ptx::mbarrier_init(smem.q_full(buffer, group), 1);
      ptx::mbarrier_init(smem.q_empty(buffer, group), kWarps);
    }
  }
  for (int buffer = 0; buffer < kConfig.n_buffers; ++buffer) {
    ptx::mbarrier_init(smem.k_full(buffer), 1);
    ptx::mbarrier_init(smem.v_full(buffer), 1);
    ptx::mbarrier_init(smem.k_empty(buffer), kConfig.n_mma_groups * kWarps);
    ptx::mbarrier_init(smem.v_empty(buffer), kConfig.n_mma_groups * kWarps);
  }
  ptx::fence_mbarrier_init();
}

template <HopperForwardKernelConfig kConfig>
FLASH_DEVICE void forward(const ForwardKernelArgs& args) {
  extern __shared__ __align__(1024) char shared_memory[];
  const SharedStorage<kConfig> smem{static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory))};
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&args.q);
    ptx::prefetch_tensormap(&args.k);
    ptx::prefetch_tensormap(&args.v);
    ptx::prefetch_tensormap(&args.o);
    init_barriers(smem);
  }
  __syncthreads();  // the barriers are initialised

  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<kConfig.producer_registers()>();
    if (threadIdx.x == 0) Producer<kConfig>{args, smem, {}, {}, {}}.run();
  } else {
    ptx::setmaxnreg_inc<kConfig.consumer_registers()>();
    Consumer<kConfig>(args, smem, warpgroup - 1).run();
  }
}

}  // namespace flash::sm90
