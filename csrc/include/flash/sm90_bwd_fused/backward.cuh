// Fused backward attention for sm_90a: warp-specialised, TMA, wgmma. Three kernels:
//
//   kDots   RowStats of every query (flash/tile/row_dots.cuh), and zeros for its sums of dQ.
//   kKeys   A thread block keeps 128 rows of K and V while blocks of Q and dO pass by, of all query
//           heads that share them. It sums dV = P^T dO and dK = dS^T Q in registers, and adds its
//           keys' share of dQ = dS K to sums in global memory.
//   kRound  dQ from these.
//
// Scores are computed once: five matmuls, where flash/sm90_bwd needs seven. The price is that the
// thread blocks' shares of dQ are added in the order in which they come, so that its last bits
// differ from run to run; dK and dV are bitwise repeatable.
//
// Warpgroup 0 produces, the others consume, as in flash/sm90_bwd.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90_bwd/backward.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/sm90_bwd_fused/consumer.cuh"
#include "flash/sm90_bwd_fused/round.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm90_bwd_fused {

template <typename L>
FLASH_DEVICE void init_ds_barriers(const L& smem) {
  for (int stage = 0; stage < L::kDsStages; ++stage) {
    ptx::mbarrier_init(smem.ds_full(stage), FusedBackwardKernelConfig::kWarps);
    ptx::mbarrier_init(smem.ds_empty(stage), FusedBackwardKernelConfig::kWarps);
  }
}

// `place`: what a Work is made of, beside the call.
template <FusedBackwardKernelConfig kConfig, typename L, typename... Place>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args, const Place&... place) {
  constexpr auto kTwoPass = kConfig.two_pass();
  extern __shared__ __align__(1024) char shared_memory[];
  const L smem{ptx::shared_address(shared_memory)};
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    init_ds_barriers(smem);
    sm90_bwd::init_barriers(smem);
  }
  __syncthreads();  // the barriers are initialised

  const typename L::Work work(args.call, place...);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<kTwoPass.producer_registers(Variant::kKeys)>();
    if (threadIdx.x == 0) sm90_bwd::Producer<L, typename L::Work>{args, smem, work}.run();
  } else {
    ptx::setmaxnreg_inc<kTwoPass.consumer_registers(Variant::kKeys)>();
    Consumer<kConfig, L>(args, smem, work, warpgroup - 1).run();
  }
}

// The thread blocks of kDots share the sums of a head out as they do its rows.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE void clear_query_sums(const BackwardArgs& args) {
  constexpr int kThreads = sm90_bwd::HopperBackwardKernelConfig::kDotsThreads;
  constexpr int kRows = kThreads / lanes_of_row(kConfig.d_head);
  constexpr int kPieces = kRows * kConfig.d_head * int{sizeof(float)} / 16;
  static_assert(kPieces % kThreads == 0);
  char* const sums = reinterpret_cast<char*>(args.d_q_sums) + int64_t{blockIdx.x} * kPieces * 16;
#pragma unroll
  for (int piece = 0; piece < kPieces; piece += kThreads) {
    ptx::st_global_16(sums + (piece + threadIdx.x) * 16, {});
  }
}

template <FusedBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    clear_query_sums<kConfig>(args.call);
    write_row_stats<kConfig.dtype, kConfig.d_head,
                    sm90_bwd::HopperBackwardKernelConfig::kDotsThreads>(args.call);
  } else if constexpr (kVariant == Variant::kKeys) {
    gradients<kConfig, Layout<kConfig>>(args, blockIdx.x);
  } else {
    round_query_sums<kConfig>(args.call);
  }
}

}  // namespace flash::sm90_bwd_fused
