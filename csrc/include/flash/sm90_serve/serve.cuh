// Attention for sequences of different lengths, for sm_90a: the forward pass of sm90/, with
// windows, soft caps and sinks, and what a call asks for decided at run time, outside of the inner
// loop.
//
// Packed sequences are rows of one tensor for the copy engine. Of its boxes that reach behind a
// sequence's end, K needs nothing (scores are hidden), V and Q are cleared there, and O is stored
// row by row. Warp 0 looks sequences up and loads, warp 1 clears values that nobody sees, and the
// other warpgroups consume, as in sm90/forward/forward.cuh.
#pragma once

#include "flash/core/variant.h"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90/forward/forward.cuh"
#include "flash/sm90_serve/clearing.cuh"
#include "flash/sm90_serve/consumer.cuh"
#include "flash/sm90_serve/producer.cuh"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void serve(const ServeKernelArgs& args) {
  static_assert(kVariant == Variant::kServe);
  extern __shared__ __align__(1024) char shared_memory[];
  const Storage<kConfig> smem{{static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory))}};
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&args.q);
    ptx::prefetch_tensormap(&args.k);
    ptx::prefetch_tensormap(&args.v);
    ptx::prefetch_tensormap(&args.o);
    for (int place = 0; place < kConfig.n_buffers; ++place) {
      ptx::mbarrier_init(smem.landed(place), 1);
      ptx::mbarrier_init(smem.cleared(place), 1);
    }
    sm90::init_barriers<kConfig.forward()>(smem);
  }
  __syncthreads();  // the barriers are initialised

  if (warp < 4) {
    ptx::setmaxnreg_dec<kConfig.producer_registers()>();
    if (warp == 0) {
      Producer<kConfig>(args, smem, lane).run();
    } else if (warp == 1) {
      Clearing<kConfig>{smem, lane}.run();
    }
  } else {
    ptx::setmaxnreg_inc<kConfig.consumer_registers()>();
    Consumer<kConfig>(args, smem, warp / 4 - 1).run();
  }
}

}  // namespace flash::sm90_serve
