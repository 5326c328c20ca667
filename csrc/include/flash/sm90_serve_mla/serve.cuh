// Attention with the latent cache of MLA, its projections absorbed, for sm_90a: TMA and wgmma, for
// tiles of 64 rows, a query of one head each. Three kernels, as sm80_serve_mla/serve.cuh:
//
//   kAppend   As of the Ampere family's.
//   kServe    The thread blocks share the keys of the whole call, or each has a split of a tile. A
//             block of keys is copied to shared memory once, for both matmuls: as B of the scores,
//             and its first columns, by a descriptor whose major dimension is the other, as B of
//             the output. One warp produces (producer.cuh), two warpgroups compute (consumer.cuh).
//   kCombine  As of the Ampere family's, begun while kServe ends.
#pragma once

#include "flash/core/variant.h"
#include "flash/ptx/grid_dependency.cuh"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm80_serve/append.cuh"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm90_serve_mla/args.h"
#include "flash/sm90_serve_mla/config.h"
#include "flash/sm90_serve_mla/consumer.cuh"
#include "flash/sm90_serve_mla/producer.cuh"

namespace flash::sm90_serve_mla {

template <HopperMlaKernelConfig kConfig>
FLASH_DEVICE void init_barriers(const Place<kConfig>& at) {
  for (int stage = 0; stage < kConfig.n_stages; ++stage) {
    for (const Half half : {kLeft, kRight}) {
      ptx::mbarrier_init(at.full(stage, half), 1);
      ptx::mbarrier_init(at.empty(stage, half), HopperMlaKernelConfig::kGroupWarps);
    }
  }
  for (const uint32_t barrier : {at.weights_told(), at.weights_read(), at.cleared()}) {
    ptx::mbarrier_init(barrier, HopperMlaKernelConfig::kGroupWarps * 32);
  }
  ptx::fence_mbarrier_init();
}

template <HopperMlaKernelConfig kConfig>
FLASH_DEVICE void decode(const ServeKernelArgs& args) {
  extern __shared__ __align__(1024) char shared_memory[];
  const Place<kConfig> at = {shared_memory};
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&args.k);
    ptx::prefetch_tensormap(&args.v);
    init_barriers(at);
  }
  // By every warp, before they part ways: the code is fetched once, which a short call waits for.
  constexpr auto kAmpere = kConfig.ampere();
  const sm80_serve::Abreast abreast(args.abreast);
  sm80_serve_mla::ParkedPieces<kAmpere> pieces(&at.state().pieces, at.lane);
  sm80_serve::UnitCount share_units;
  if (!sm80_serve_mla::find_pieces<kAmpere>(args.call, at.lane, pieces, share_units, abreast)) {
    return;
  }
  const auto first = pieces.next(args.call, abreast);
  __syncthreads();  // the barriers are initialised
  if (at.warp >= kConfig.n_warps) {
    ptx::setmaxnreg_dec<HopperMlaKernelConfig::kProducerRegisters>();
    if (at.warp == kConfig.n_warps) Producer<kConfig>(args, at).run(first, pieces, abreast);
  } else {
    ptx::setmaxnreg_inc<HopperMlaKernelConfig::kComputeRegisters>();
    Consumer<kConfig>(args, at, abreast).run(first, pieces, share_units);
  }
}

template <HopperMlaKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void serve(const ServeKernelArgs& args) {
  // All kernels of a configuration are launched with the threads of one.
  if (kVariant != Variant::kServe && threadIdx.x >= kConfig.compute_threads()) return;
  if constexpr (kVariant == Variant::kAppend) {
    sm80_serve::append<kConfig.ampere().serving()>(args.call);
  } else if constexpr (kVariant == Variant::kCombine) {
    ptx::await_grids_before();
    sm80_serve::combine<kConfig.ampere().serving()>(args.call);
  } else {
    decode<kConfig>(args);
  }
}

}  // namespace flash::sm90_serve_mla
