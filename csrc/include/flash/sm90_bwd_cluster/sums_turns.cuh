// In order, pairs of thread blocks add to the sums of a block of queries one after the other
// (flash/tile/ordered_tiles.cuh). So the sums, and dQ, are bitwise the same in every run.
//
// For each block of queries two counters in global memory say how many pairs have added theirs, one
// for each thread block of a pair: it adds other elements than the other one. The group that adds
// talks to nobody outside its thread block: what takes long beside a step of 2,600 cycles is left
// to two of the producer's warps, one thread each. An answer from L2 takes 360 to 800 of them, and
// a release, which waits for all that the multiprocessor has in flight, 1,300.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/sums_turn.cuh"
#include "flash/sm90_bwd_cluster/args.h"
#include "flash/sm90_bwd_cluster/layout.cuh"

namespace flash::sm90_bwd_cluster {

// Behind the sums of dQ.
template <ClusterBackwardKernelConfig kConfig>
struct TurnCounters {
  static constexpr unsigned kOfBlock = ClusterBackwardKernelConfig::kBlocks;
  static_assert(kConfig.wave_pairs == 0, "no counters of sections lie there");

  const BackwardKernelArgs& args;

  // `row`: the first of a block of queries, among those of the sums.
  FLASH_DEVICE uint32_t* of_row(int64_t row, int rank) const {
    return words() + row / kConfig.keys_columns * kOfBlock + rank;
  }

  // By the kernel before, whose threads share them out.
  FLASH_DEVICE void clear() const {
    const auto n = static_cast<unsigned>(rows() / kConfig.keys_columns) * kOfBlock;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
      words()[i] = 0;
    }
  }

 private:
  FLASH_DEVICE int64_t rows() const {  // they are numbered in 32 bits
    return int64_t{args.sections.n_heads} * args.sections.rows_of_head;
  }
  FLASH_DEVICE uint32_t* words() const {
    return reinterpret_cast<uint32_t*>(args.call.d_q_sums + rows() * kConfig.d_head);
  }
};

// One thread of each of two warps.
template <ClusterBackwardKernelConfig kConfig>
struct TurnKeeper {
  const BackwardKernelArgs& args;
  const Layout<kConfig>& smem;
  const PairWork<kConfig>& work;
  const int rank;

  // Tells the group when its turn has come. `parity`: of the tile's first step. Returns that of the
  // next tile's.
  FLASH_DEVICE uint32_t ask(uint32_t parity) const {
    for_each_step([&](const sm90_bwd::SumsTurn& turn) {
      turn.await();
      ptx::fence_proxy_async_global();  // what others have added, for the copy engine
      sm90::wait_phase(smem.turn_taken(), parity ^ 1);
      ptx::mbarrier_arrive(smem.turn_come());
      parity ^= 1;
    });
    return parity;
  }

  // Tells the next pair when the group has added. `parity`, and what it returns: as above.
  FLASH_DEVICE uint32_t pass_on(uint32_t parity) const {
    for_each_step([&](const sm90_bwd::SumsTurn& turn) {
      sm90::wait_phase(smem.share_added(), parity);
      turn.pass_on();
      ptx::mbarrier_arrive(smem.turn_passed_on());
      parity ^= 1;
    });
    return parity;
  }

 private:
  template <typename Body>
  FLASH_DEVICE void for_each_step(Body&& body) const {
    Place place{work.first, 0};
    const int n_steps = work.n_steps();
#pragma unroll 1
    for (int i = 0; i < n_steps; ++i) {
      const int64_t row = sums_row<kConfig>(args.call, work, place);
      body(sm90_bwd::SumsTurn{TurnCounters<kConfig>{args}.of_row(row, rank),
                              work.number(place.block)});
      place.advance(work);
    }
  }
};

// The group's side: lane 0 of each of its warps, which has the copy engine add.
template <ClusterBackwardKernelConfig kConfig>
struct WarpTurns {
  const Layout<kConfig>& smem;
  uint32_t parity = 0;  // of the step

  FLASH_DEVICE void take() {
    sm90::wait_phase(smem.turn_come(), parity);
    ptx::mbarrier_arrive(smem.turn_taken());
    parity ^= 1;
  }

  // That of the step before.
  FLASH_DEVICE void hand_over() const {
    ptx::tma_store_wait<0>();
    sm90::wait_phase(smem.turn_passed_on(), parity);  // of the step before that
    ptx::mbarrier_arrive(smem.share_added());
  }
};

}  // namespace flash::sm90_bwd_cluster
