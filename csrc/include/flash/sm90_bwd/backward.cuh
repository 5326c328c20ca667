// Backward attention for sm_90a: warp-specialised, TMA, wgmma. Three kernels:
//
//   kDots     RowStats of every query (flash/tile/row_dots.cuh).
//   kKeys     A thread block keeps rows of K and V while blocks of Q and dO pass by, of all query
//             heads that share them, and sums dV = P^T dO and dK = dS^T Q in registers.
//   kQueries  A thread block keeps rows of Q and dO while K and V pass by, and sums dQ = dS K.
//
// Scores are computed twice, seven matmuls in place of five: so nothing is added up in global
// memory, every sum has one order, and every gradient is bitwise repeatable.
//
// Warpgroup 0 produces: one thread has the copy engine load the rows that stay, and those that pass
// by into a ring. The other warpgroups consume. Barriers in shared memory hand tiles over ("full")
// and back ("empty").
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90_bwd/consumer.cuh"
#include "flash/sm90_bwd/pair.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm90_bwd {

template <typename L>
FLASH_DEVICE void init_barriers(const L& smem) {
  constexpr int kConsumerWarps = L::kBlocks * L::kGroups * HopperBackwardKernelConfig::kGroupWarps;
  ptx::mbarrier_init(smem.own1_full(), 1);
  ptx::mbarrier_init(smem.own2_full(), 1);
  for (int stage = 0; stage < L::kStages1; ++stage) {
    ptx::mbarrier_init(smem.full1(stage), 1);
    ptx::mbarrier_init(smem.empty1(stage), kConsumerWarps);
  }
  for (int stage = 0; stage < L::kStages2; ++stage) {
    ptx::mbarrier_init(smem.full2(stage), 1);
    ptx::mbarrier_init(smem.empty2(stage), kConsumerWarps);
  }
  if constexpr (L::kSplitsSums) {
    // All threads of a group arrive: racecheck follows what each has read or written to its own
    // arrival alone.
    for (int stage = 0; stage < L::kWeightStages; ++stage) {
      ptx::mbarrier_init(smem.weights_full(stage), HopperBackwardKernelConfig::kGroupThreads);
      ptx::mbarrier_init(smem.weights_empty(stage), HopperBackwardKernelConfig::kGroupThreads);
    }
    ptx::mbarrier_init(smem.own_read(), L::kPartners * HopperBackwardKernelConfig::kGroupWarps);
  }
  ptx::fence_mbarrier_init();
}

// The only tile.
template <typename Consumer>
FLASH_DEVICE void consume(Consumer&& consumer) {
  consumer.multiply(0);
  consumer.leave(0);
}

template <HopperBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args) {
  using L = Layout<kConfig, kVariant>;
  const L smem{ptx::dynamic_shared_address()};
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) init_barriers(smem);
  __syncthreads();  // the barriers are initialised

  const Work<L> work(args.call, blockIdx.x);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<kConfig.producer_registers(kVariant)>();
    if (threadIdx.x == 0) Producer<L>{args, smem}.run(work);
  } else {
    ptx::setmaxnreg_inc<kConfig.consumer_registers(kVariant)>();
    if constexpr (!L::kSplitsSums) {
      Consumer<kConfig, kVariant>(args, smem, work, warpgroup - 1).run();
    } else if (warpgroup == 1) {
      consume(WeightsConsumer<kConfig>(args, smem, work));
    } else {
      consume(ScoresConsumer<kConfig>(args, smem, work));
    }
  }
}

template <HopperBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    write_row_stats<kConfig.dtype, kConfig.d_head, HopperBackwardKernelConfig::kDotsThreads>(
        args.call);
  } else {
    gradients<kConfig, kVariant>(args);
  }
}

}  // namespace flash::sm90_bwd
