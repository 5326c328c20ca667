// dQ: a pair of thread blocks adds its 128 keys' share to sums in global memory.
//
// Each of the two has 64 of the keys, and dS of them. It hands that to the other one, so that both
// have dS of all 128, and sums half of the elements of the head: all sums together are added up
// half as often as by thread blocks of 64 keys alone.
#pragma once

#include "flash/ptx/cluster.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/mbarrier.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/ptx/wgmma.cuh"
#include "flash/sm90_bwd/pair.cuh"
#include "flash/sm90_bwd_cluster/args.h"
#include "flash/sm90_bwd_cluster/layout.cuh"
#include "flash/sm90_bwd_cluster/section_counters.cuh"
#include "flash/sm90_bwd_cluster/sums_turns.cuh"
#include "flash/tile/matrix_descriptor.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_cluster {

// A thread block's part of a block of dQ = dS K: of three chunks of the head each of the pair has
// one, and half of the last. A chunk and its half are one matmul, whose descriptor leads from one
// to the other; so the half has to lie behind.
//
// In global memory the sums of a block lie in the order of the accumulators: for each thread block
// of the pair and each of its warps, which has 16 queries, and each eight of its elements, four
// sums of each lane. Nobody reads them but who rounds them.
template <ClusterBackwardKernelConfig kConfig>
struct QuerySums {
  static constexpr int kChunk = ClusterBackwardKernelConfig::kChunk;
  static constexpr int kHalf = kConfig.sums_elements() - kChunk;  // of the last chunk
  static constexpr int kLastChunk = kConfig.d_head / kChunk - 1;
  static constexpr int kPieces = kConfig.sums_elements() / 8;  // of 16 bytes of each lane
  static constexpr int kChunkPieces = kChunk / 8;
  static constexpr int kPieceBytes = 32 * 16;  // of a warp
  static constexpr int kWarpBytes = kPieces * kPieceBytes;
  static constexpr int kWarps = 4;
  static_assert(kHalf * 2 == kChunk && kWarps * kWarpBytes == kConfig.sums_bytes());

  using Sums = float[kConfig.sums_elements() / 2];

  // The chunk of the thread block alone.
  FLASH_DEVICE static int own_chunk(int rank) { return rank; }
  // The first element of eight.
  FLASH_DEVICE static int element(int rank, int piece) {
    return piece < kChunkPieces ? own_chunk(rank) * kChunk + piece * 8
                                : kLastChunk * kChunk + rank * kHalf + (piece - kChunkPieces) * 8;
  }
  // Where a warp's begin, from those of the block of queries on.
  FLASH_DEVICE static int place(int rank, int warp) { return (rank * kWarps + warp) * kWarpBytes; }
};

// The third consumer: it waits for dS, and nobody waits for it but who writes the next.
template <ClusterBackwardKernelConfig kConfig>
struct SumsConsumer : QuerySums<kConfig> {
  using L = Layout<kConfig>;
  using Base = QuerySums<kConfig>;
  using Tile = MatrixDescriptor<128>;
  static constexpr bool kInOrder = kConfig.in_order();
  static constexpr int kKeySteps = kConfig.keys_rows / 16;
  static constexpr int kKeysChunk = kConfig.keys_rows * 128;  // bytes

  const BackwardKernelArgs& args;
  const L& smem;
  const typename L::Work& work;
  const int rank;
  int warp;
  int lane;
  sm90::RingPosition<L::kDsStages> ring;
  typename Base::Sums sums;
  int staged = 0;  // the next buffer
  WarpTurns<kConfig> turns;

  FLASH_DEVICE SumsConsumer(const BackwardKernelArgs& launch_args, const L& layout,
                            const typename L::Work& work_of_block)
      : args(launch_args),
        smem(layout),
        work(work_of_block),
        rank(static_cast<int>(ptx::cluster_rank())),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        turns{layout} {}

  // `parity`: of the tile.
  FLASH_DEVICE void multiply(uint32_t parity) {
    SectionCounters<kConfig>{args, work.pair}.template await_prepared<true>();
    const int n_steps = work.n_steps();
    // Not for own K: dS is made of it.
    sm90::wait_phase(smem.other_keys_full(), parity);
    Place place{work.first, 0};
    for (int i = 0; i < n_steps; ++i) {
      step(place, i > 0);
      place.advance(work);
    }
    if (lane == 0) ptx::mbarrier_arrive(smem.own_read());
  }

  // Behind the last step: all is added.
  FLASH_DEVICE void leave(uint32_t) {
    if (lane != 0) return;
    if constexpr (kInOrder) {
      turns.hand_over();
    } else {
      ptx::tma_store_wait<0>();
      SectionCounters<kConfig>{args, work.pair}.count_added();
    }
  }

 private:
  FLASH_DEVICE void step(const Place& place, bool follows) {
    sm90::wait_phase(smem.ds_full(ring.buffer), ring.parity);
    issue();
    if constexpr (kInOrder) {
      if (lane == 0) next_turn(follows);  // while the matmul runs
    }
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(sums);
    release(smem.ds_empty(ring.buffer));
    ring.advance();
    add(place);
  }

  FLASH_DEVICE void next_turn(bool follows) {
    if (follows) turns.hand_over();
    turns.take();
  }

  // Asynchronous, as one group.
  FLASH_DEVICE void issue() {
    const int chunk = Base::own_chunk(rank) * kKeysChunk;
    const int half = rank * Base::kHalf * bytes_of(kConfig.dtype);  // in its chunk
    ptx::wgmma_touch(sums);
    ptx::wgmma_fence();
    multiply<false>(smem.ds(ring.buffer), smem.own1(0) + chunk,
                    Base::kLastChunk * kKeysChunk - chunk + half);
    multiply<true>(smem.other_ds(ring.buffer), smem.other_keys(), kKeysChunk + half);
    ptx::wgmma_commit_group();
  }

  // `to_half`: from the chunk at `keys` to the half.
  template <bool kAdds>
  FLASH_DEVICE void multiply(uint32_t ds, uint32_t keys, int to_half) {
    const auto scores = Tile::mn_major(L::matrix_address(ds), kKeysChunk);
    const auto part = Tile::mn_major(L::matrix_address(keys), to_half);
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      ptx::Wgmma<kConfig.sums_elements()>::template ss_mn<kConfig.dtype>(
          sums, scores.mn_step(step), part.mn_step(step), kAdds || step != 0);
    }
  }

  // To both thread blocks: what they wrote has been read.
  FLASH_DEVICE void release(uint32_t barrier) const {
    if (lane != 0) return;
    ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_arrive_at_peer(ptx::peer_address(barrier, rank ^ 1));
  }

  // By way of buffers that the copy engine reads: it does not hold up the others' accesses of
  // shared memory, as reductions from registers do.
  FLASH_DEVICE void add(const Place& place) {
    const int64_t row = sums_row<kConfig>(args.call, work, place);
    float* const to =
        args.call.d_q_sums + row * kConfig.d_head + Base::place(rank, warp) / int{sizeof(float)};
    static_for<0, Base::kPieces / L::kStagedPieces>(
        [&](auto part) { add_part<part * L::kStagedPieces>(to); });
  }

  // kStagedPieces of them, from piece kFrom on. `to`: where the warp's begin.
  template <int kFrom>
  FLASH_DEVICE void add_part(float* to) {
    constexpr int kBytes = L::kStagedPieces * Base::kPieceBytes;
    // In order nothing is left of the step before.
    constexpr bool kIsFree = kInOrder && kFrom < L::kStagingBuffers * L::kStagedPieces;
    if (!kIsFree && lane == 0) ptx::tma_store_wait_read<L::kStagingBuffers - 1>();
    if (!kIsFree || kFrom == 0) __syncwarp();  // all know that the buffer is free
    const uint32_t staging = smem.staging(staged) + warp * kBytes;
    static_for<0, L::kStagedPieces>([&](auto piece) {
      constexpr int kFirst = (kFrom + piece) * 4;
      ptx::st_shared_16<piece * Base::kPieceBytes>(
          staging + lane * 16,
          {{__float_as_uint(sums[kFirst]), __float_as_uint(sums[kFirst + 1]),
            __float_as_uint(sums[kFirst + 2]), __float_as_uint(sums[kFirst + 3])}});
    });
    ptx::fence_proxy_async_shared();  // for the copy engine
    __syncwarp();                     // ... of all lanes
    if (lane == 0) {
      ptx::bulk_reduce_add_f32(to + kFrom * (Base::kPieceBytes / 4), staging, kBytes);
      ptx::tma_store_commit();
    }
    staged = staged + 1 == L::kStagingBuffers ? 0 : staged + 1;
  }
};

}  // namespace flash::sm90_bwd_cluster
