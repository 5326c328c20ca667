// Backward attention for sm_90a by pairs of thread blocks: warp-specialised, TMA, wgmma. Three
// kernels:
//
//   kDots     RowStats of every query (flash/tile/row_dots.cuh), and zeros for its sums of dQ.
//             Where heads are many, of the first ones alone, as kRound is of the last (sections.h).
//   kKeys     A cluster of two thread blocks keeps 128 rows of K and V, each 64, while blocks of Q
//             and dO pass by; and then the next (tiles.cuh). Each sums dV = P^T dO and dK = dS^T Q
//             of its keys in registers, as flash/sm90_bwd does; and adds half of both their share
//             of dQ = dS K to sums in global memory (query_sums.cuh).
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
#include "flash/sm90_bwd/pair.cuh"
#include "flash/sm90_bwd/producer.cuh"
#include "flash/sm90_bwd_cluster/query_sums.cuh"
#include "flash/sm90_bwd_cluster/round.cuh"
#include "flash/sm90_bwd_cluster/spare_warps.cuh"
#include "flash/sm90_bwd_cluster/sums_turns.cuh"
#include "flash/sm90_bwd_cluster/tiles.cuh"
#include "flash/sm90_bwd_cluster/weights_consumer.cuh"
#include "flash/tile/clear_sums.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm90_bwd_cluster {

template <typename L>
FLASH_DEVICE void init_pair_barriers(const L& smem) {
  constexpr int kGroupWarps = sm90_bwd::HopperBackwardKernelConfig::kGroupWarps;
  // All warps; the first of a pair is told of the second's, too.
  constexpr int kReaders = 1 + ClusterBackwardKernelConfig::kKeepingWarps;
  ptx::mbarrier_init(smem.other_keys_full(), 1);
  ptx::mbarrier_init(smem.tile_full(), 1);
  ptx::mbarrier_init(smem.tile_empty(), kReaders + (ptx::cluster_rank() == 0 ? 1 : 0));
  ptx::mbarrier_init(smem.own1_empty(), kGroupWarps);
  ptx::mbarrier_init(smem.own2_empty(), kGroupWarps);
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

// Loads all tiles of a thread block: one thread. The first block of queries comes before the keys,
// whose place is free only when all of the tile before has been multiplied and has left.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void load_tiles(const BackwardKernelArgs& args, const Layout<kConfig>& smem,
                             uint32_t rank) {
  using Own = PairWork<kConfig>;
  sm90_bwd::Producer<Layout<kConfig>, Own> loads{args, smem};
  for (uint32_t parity = 0;; parity ^= 1) {
    sm90::wait_phase(smem.tile_full(), parity);
    const PairTile tile = drawn_tile(smem);
    if (!tile.exists()) return;
    const Own work(args.call, tile, rank);
    const int n_steps = work.n_steps();
    Place place{work.first, 0};
    const auto load_queries = [&] {
      loads.load_other1(work, place);
      loads.load_other2(work, place);
      place.advance(work);
    };
    SectionCounters<kConfig>{args, tile.place}.await_prepared();
    load_queries();
    sm90::wait_phase(smem.own1_empty(), parity ^ 1);
    loads.load_own1(work);
    load_other_keys<kConfig>(args, smem, work, rank);
    sm90::wait_phase(smem.own2_empty(), parity ^ 1);
    loads.load_own2(work);
    for (int step = 1; step < n_steps; ++step) load_queries();
    ptx::mbarrier_arrive(smem.tile_empty());
  }
}

// The first warpgroup but for the warp that loads: one draws tiles, and they take care of sums; in
// order the two others, by one thread each. What they need for the next tile they read again.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void take_care_of_sums(const BackwardKernelArgs& args, const Layout<kConfig>& smem) {
  constexpr unsigned kDrawer = 3;
  const auto warp = [] { return ptx::warp_of_block(); };
  const auto kept = [&] { return smem.kept(warp() - 1); };
  const auto is_first_lane = [] { return ptx::lane_id() == 0; };
  const WarpTile<Layout<kConfig>> tile{smem};
  if (warp() == kDrawer && is_first_lane()) draw_tile<kConfig, true>(args, smem, 1);
  for (TileParity parity{}; tile.take(kept(), ptx::lane_id(), parity);) {
    if constexpr (kConfig.in_order()) {
      uint32_t of_turn = parity.of_turn;
      const PairTile own = tile.get(kept());
      const uint32_t own_warp = warp();
      if (own_warp != kDrawer && is_first_lane()) {
        const int rank = static_cast<int>(ptx::cluster_rank());
        const PairWork<kConfig> work(args.call, own, rank);
        const TurnKeeper<kConfig> keeper{args, smem, work, rank};
        of_turn = own_warp == 1 ? keeper.ask(of_turn) : keeper.pass_on(of_turn);
      }
      __syncwarp();  // one lane alone has kept turns
      parity = tile.parity(kept());
      parity.of_turn = of_turn;
    } else {
      if constexpr (SectionCounters<kConfig>::kExist) {
        SpareWarp<kConfig>{args, smem, warp() - 1}.run();
      }
      parity = tile.parity(kept());
    }
    __syncwarp();  // all lanes have read what is taken in its place
    if (warp() == kDrawer && is_first_lane()) {
      draw_tile<kConfig, false>(args, smem, parity.of_tile);
    }
    parity.of_tile ^= 1;
  }
}

// A warp of consumer `kGroup`. What it needs behind a tile's last step, it reads again, and works
// out again, so that it is not kept in registers meanwhile.
template <ClusterBackwardKernelConfig kConfig, int kGroup, typename Consumer>
FLASH_DEVICE void consume_tiles(const BackwardKernelArgs& args, const Layout<kConfig>& smem) {
  const WarpTile<Layout<kConfig>> tile{smem};
  PairWork<kConfig> work;
  Consumer consumer(args, smem, work);
  const auto forget = [&] {
    ptx::forget(consumer.warp);
    ptx::forget(consumer.lane);
  };
  const auto kept = [&] { return smem.kept(3 + kGroup * 4 + consumer.warp); };
  const auto read = [&] {
    work = PairWork<kConfig>(args.call, tile.get(kept()), ptx::cluster_rank());
  };
  for (TileParity parity{}; tile.take(kept(), consumer.lane, parity); parity.of_tile ^= 1) {
    forget();
    read();
    consumer.multiply(parity.of_tile);
    forget();
    read();
    parity = tile.parity(kept());
    consumer.leave(parity.of_tile);
    __syncwarp();  // all lanes have read what is taken in its place
  }
}

template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args) {
  using L = Layout<kConfig>;
  const L smem{ptx::dynamic_shared_address()};
  const uint32_t rank = ptx::cluster_rank();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

  if (threadIdx.x == 0) {
    init_pair_barriers(smem);
    sm90_bwd::init_barriers(smem);
  }
  ptx::await_grids_before();
  ptx::cluster_sync();  // the barriers of both thread blocks are initialised

  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<ClusterBackwardKernelConfig::kProducerRegisters>();
    if (__shfl_sync(0xffffffffu, threadIdx.x / 32, 0) > 0) {
      take_care_of_sums<kConfig>(args, smem);
    } else if (threadIdx.x == 0) {
      load_tiles<kConfig>(args, smem, rank);
    }
    return;  // the cluster's barrier does not wait for threads that have ended
  }
  if (warpgroup == 1) {
    ptx::setmaxnreg_inc<ClusterBackwardKernelConfig::kWeightsRegisters>();
    consume_tiles<kConfig, 0, WeightsConsumer<kConfig>>(args, smem);
  } else if (warpgroup == 2) {
    ptx::setmaxnreg_inc<ClusterBackwardKernelConfig::kScoresRegisters>();
    using Consumer = sm90_bwd::ScoresConsumer<kConfig.two_pass(), L, PairWork<kConfig>>;
    consume_tiles<kConfig, 1, Consumer>(args, smem);
  } else {
    ptx::setmaxnreg_dec<ClusterBackwardKernelConfig::kSumsRegisters>();
    consume_tiles<kConfig, 2, SumsConsumer<kConfig>>(args, smem);
  }
  __syncwarp();         // one lane alone has stored
  ptx::cluster_sync();  // nobody reaches this thread block's shared memory any more
}

template <ClusterBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    ptx::await_grids_before();
    ptx::let_next_grid_begin();  // it waits for this one's end, but its launch takes time
    clear_query_sums<kConfig.d_head, sm90_bwd::HopperBackwardKernelConfig::kDotsThreads>(args.call);
    SectionCounters<kConfig>{args}.clear();
    if constexpr (kConfig.in_order()) TurnCounters<kConfig>{args}.clear();
    clear_tile_counter<kConfig>(args);
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
