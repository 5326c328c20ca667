// Backward attention for sm_90a by pairs of thread blocks: warp-specialised, TMA, wgmma. Three
// kernels:
//
//   kDots     RowStats of every query (flash/tile/row_dots.cuh), and zeros for its sums of dQ.
//             Where heads are many, of the first ones alone, as kRound is of the last (sections.h).
//   kKeys     A cluster of two thread blocks keeps 128 rows of K and V, each 64, while blocks of Q
//             and dO pass by. Each sums dV = P^T dO and dK = dS^T Q of its keys in registers, as
//             flash/sm90_bwd does; and adds half of both their share of dQ = dS K to sums in global
//             memory (query_sums.cuh).
//   kRound    dQ from these.
//
// For head dimensions whose dK and dV of 128 keys do not fit the registers of a multiprocessor.
// Scores are computed once: five matmuls, where flash/sm90_bwd needs seven.
//
// Warpgroup 0 produces, with one warp; the others do for other heads what the kernels around this
// one are for (spare_warps.cuh) or, in order, see to whose turn it is to add (sums_turns.cuh).
// Three consume: one sums dV, one dK, and one dQ.
#pragma once

#include "flash/ptx/grid_dependency.cuh"
#include "flash/ptx/lane.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/setmaxnreg.cuh"
#include "flash/sm90_bwd/backward.cuh"
#include "flash/sm90_bwd/clear_sums.cuh"
#include "flash/sm90_bwd/pair.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/sm90_bwd_cluster/query_sums.cuh"
#include "flash/sm90_bwd_cluster/round.cuh"
#include "flash/sm90_bwd_cluster/spare_warps.cuh"
#include "flash/sm90_bwd_cluster/sums_turns.cuh"
#include "flash/sm90_bwd_cluster/weights_consumer.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm90_bwd_cluster {

template <typename L>
FLASH_DEVICE void init_pair_barriers(const L& smem) {
  constexpr int kGroupWarps = sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  ptx::mbarrier_init(smem.other_keys_full(), 1);
  if constexpr (L::kInOrder) {
    ptx::mbarrier_init(smem.turn_come(), 1);
    ptx::mbarrier_init(smem.turn_taken(), kGroupWarps);
    ptx::mbarrier_init(smem.share_added(), kGroupWarps);
    ptx::mbarrier_init(smem.turn_passed_on(), 1);
  }
  for (int stage = 0; stage < L::kDsStages; ++stage) {
    ptx::mbarrier_init(smem.ds_full(stage), kGroupWarps);
    ptx::mbarrier_init(smem.ds_empty(stage), ClusterBackwardKernelConfig::kBlocks * kGroupWarps);
  }
}

// The chunks of the other's K that this thread block multiplies by dS.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void load_other_keys(const BackwardKernelArgs& args, const Layout<kConfig>& smem,
                                  const PairWork<kConfig>& work, uint32_t rank) {
  constexpr int kChunkBytes = kConfig.other_keys_bytes() / 2;
  const uint32_t full = smem.other_keys_full();
  const int row = work.first_row + (rank == 0 ? kConfig.keys_rows : -kConfig.keys_rows);
  using Sums = QuerySums<kConfig>;
  const int chunks[] = {Sums::own_chunk(static_cast<int>(rank)), Sums::kLastChunk};
  ptx::mbarrier_arrive_expect_tx(full, kConfig.other_keys_bytes());
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::tma_load_5d(smem.other_keys() + i * kChunkBytes, &args.narrow, full, 0, row, chunks[i],
                     static_cast<int>(work.head), static_cast<int>(work.batch), ptx::kEvictFirst);
  }
}

template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args) {
  using L = Layout<kConfig>;
  constexpr auto kTwoPass = kConfig.two_pass();
  const L smem{ptx::dynamic_shared_address()};
  const uint32_t rank = ptx::cluster_rank();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    init_pair_barriers(smem);
    sm90_bwd::init_barriers(smem);
  }
  ptx::await_grids_before();
  ptx::cluster_sync();  // the barriers of both thread blocks are initialised

  const PairWork<kConfig> work(args.call, blockIdx.x, rank);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<ClusterBackwardKernelConfig::kProducerRegisters>();
    const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp > 0) {
      if constexpr (L::kInOrder) {
        if (ptx::lane_id() != 0) return;
        const TurnKeeper<kConfig> keeper{args, smem, work, static_cast<int>(rank)};
        if (warp == 1) keeper.ask();
        if (warp == 2) keeper.pass_on();
      } else if constexpr (SectionCounters<kConfig>::kExist) {
        SpareWarp<kConfig>{args, warp - 1}.run();
      }
    } else if (threadIdx.x == 0 && work.n_steps() > 0) {
      sm90_bwd::Producer<L, PairWork<kConfig>> producer{args, smem};
      load_other_keys<kConfig>(args, smem, work, rank);
      SectionCounters<kConfig>{args}.await_prepared();
      producer.run(work);
    }
    return;  // the cluster's barrier does not wait for threads that have ended
  }
  if (warpgroup == 1) {
    ptx::setmaxnreg_inc<ClusterBackwardKernelConfig::kWeightsRegisters>();
    WeightsConsumer<kConfig>(args, smem, work).run();
  } else if (warpgroup == 2) {
    ptx::setmaxnreg_inc<ClusterBackwardKernelConfig::kScoresRegisters>();
    sm90_bwd::ScoresConsumer<kTwoPass, L, PairWork<kConfig>>(args, smem, work).run();
  } else {
    ptx::setmaxnreg_dec<ClusterBackwardKernelConfig::kSumsRegisters>();
    const SectionCounters<kConfig> counters{args};
    if (threadIdx.x % 32 == 0) counters.await_prepared();
    __syncwarp();  // of which lane 0 alone adds to the sums
    SumsConsumer<kConfig>(args, smem, work, rank).run();
    if (threadIdx.x % 32 == 0) counters.count_added();
  }
  __syncwarp();         // one lane alone has stored
  ptx::cluster_sync();  // nobody reaches this thread block's shared memory any more
}

template <ClusterBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    ptx::await_grids_before();
    ptx::let_next_grid_begin();  // it waits for this one's end, but its launch takes time
    sm90_bwd::clear_query_sums<kConfig.d_head>(args.call);
    SectionCounters<kConfig>{args}.clear();
    if constexpr (kConfig.in_order()) TurnCounters<kConfig>{args}.clear();
    write_row_stats<kConfig.dtype, kConfig.d_head,
                    sm90_bwd::HopperBackwardKernelConfig::kDotsThreads, kConfig.stats_block()>(
        args.call);
  } else if constexpr (kVariant == Variant::kKeys) {
    gradients<kConfig>(args);
  } else {
    ptx::await_grids_before();
    round_query_sums<kConfig>(args);
  }
}

}  // namespace flash::sm90_bwd_cluster
