// A consumer: one warpgroup that multiplies, exponentiates and stores 64 query rows of every tile.
//
// With `overlap`, the scores of one KV block are in flight together with the output of the block
// before it, and the softmax of the one runs under the output of the other.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90/forward/epilogue.cuh"
#include "flash/sm90/forward/work.cuh"
#include "flash/sm90/mask.cuh"
#include "flash/sm90/matmuls.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/schedule.cuh"
#include "flash/sm90/softmax.cuh"
#include "flash/tile/visible.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Consumer {
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr int kGroups = kConfig.n_mma_groups;
  static constexpr int kThreads = HopperForwardKernelConfig::kGroupThreads;
  static constexpr bool kOptimistic = kConfig.max_policy == MaxPolicy::kOptimistic;
  using Storage = SharedStorage<kConfig>;
  using Mm = Matmuls<kConfig>;
  using Rows = RowStatistics<kConfig.max_policy>;
  using End = Epilogue<kConfig>;

  const ForwardKernelArgs& args;
  const Storage& smem;
  const TileSchedule<kConfig> schedule;
  const int group;
  const int warp;  // of the group
  const int lane;
  const float scale_log2;
  RingPosition<kConfig.n_q_buffers> q_ring;
  RingPosition<kConfig.n_buffers> k_ring;
  RingPosition<kConfig.n_buffers> v_ring;
  typename Mm::Scores s;
  typename Mm::Probabilities p;
  typename Mm::Output o;

  FLASH_DEVICE Consumer(const ForwardKernelArgs& launch_args, const Storage& storage,
                        int group_index)
      : args(launch_args),
        smem(storage),
        schedule(launch_args),
        group(group_index),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        scale_log2(launch_args.softmax_scale * kLog2e) {}

  FLASH_DEVICE void run() {
    if constexpr (kConfig.ping_pong) {
      if (group == kGroups - 1) pass_turn();  // group 0 goes first
    }
    Work work;
    while (take_tile(work)) compute_tile(work);
    if constexpr (!kConfig.o_in_q) End::wait_staging_free(lane);  // before the block's memory goes
    if constexpr (kConfig.ping_pong) {
      if (group == 0) take_turn();  // the pass that the last group left behind
    }
  }

 private:
  // Waits for the next tile's Q.
  FLASH_DEVICE bool take_tile(Work& work) {
    wait_phase(smem.q_full(q_ring.buffer, group), q_ring.parity);
    // One lane reads, the one that releases the buffer: what the others read would be ordered
    // before the next write by that lane's arrival only behind a __syncwarp, and racecheck does not
    // see it. The maximum tells the compiler that all lanes have the same; what follows from it
    // stays in uniform registers.
    static_assert(kNoTile < 0);
    int position = kNoTile;
    if (lane == 0) position = ptx::ld_shared_4(smem.tile_index(q_ring.buffer));
    work.position = __reduce_max_sync(0xffffffffu, position);
    if (work.position == kNoTile) return false;
    work.q_buffer = q_ring.buffer;
    q_ring.advance();

    const Tile tile = schedule.tile(work.position);
    work.row = tile.first_row + group * HopperForwardKernelConfig::kGroupRows;
    work.n_blocks = schedule.n_blocks(tile);
    work.n_skipped = work.n_blocks - schedule.n_visible_blocks(work.row);
    work.n_whole = schedule.n_whole_blocks(work.row);
    return true;
  }

  // No row of this group sees a key, or there are no such rows: the blocks pass by.
  FLASH_DEVICE void empty_tile(const Work& work) {
    for (int i = 0; i < work.n_skipped; ++i) {
      skip_scores();
      skip_output();
    }
    if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
    Mm::clear(o);
    Rows rows;
    finish(work, rows);
  }

  FLASH_DEVICE void compute_tile(const Work& work) {
    if (work.n_blocks == work.n_skipped) {
      empty_tile(work);
      return;
    }
    Rows rows;
    Mm::clear(o);
    if constexpr (kConfig.overlap) {
      first_scores(work, rows);
      middle_blocks(work, rows);
      last_output();
    } else {
      for (int i = 0; i < work.n_skipped; ++i) {
        skip_scores();
        skip_output();
      }
      for (int block = first_block(work); block >= 0; --block) separate_block(work, block, rows);
      if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
    }
    finish(work, rows);
  }

  FLASH_DEVICE static int first_block(const Work& work) {
    return work.n_blocks - 1 - work.n_skipped;
  }

  FLASH_DEVICE void first_scores(const Work& work, Rows& rows) {
    for (int i = 0; i < work.n_skipped; ++i) skip_scores();
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    Mm::issue_scores(Mm::operands(smem, work.q_buffer, group, k_ring.buffer), s);
    pass_turn();
    Mm::template wait<0>(s);
    release_k();
    for (int i = 0; i < work.n_skipped; ++i) skip_output();
    softmax(work, first_block(work), rows);
    Mm::pack(s, p);
  }

  // All but the first scores and the last output. Q has been read then.
  FLASH_DEVICE void middle_blocks(const Work& work, Rows& rows) {
    int block = first_block(work) - 1;
    // An optimistic step needs a maximum in every row.
    const int n_optimistic = kOptimistic ? schedule.n_blocks_behind_a_key(work.row) : 0;
    for (; block >= n_optimistic; --block) step(work, block, rows);
    if constexpr (kOptimistic) {
      for (; block >= 0; --block) optimistic_step(work, rows);
    }
    if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
  }

  // Scores and softmax of `block`, output of the block before.
  FLASH_DEVICE void step(const Work& work, int block, Rows& rows) {
    issue_both(work);
    release_k();
    softmax(work, block, rows);
    ptx::schedule_fence();  // or ptxas waits in front of the exponentials, with nothing in flight
    Mm::template wait<0>(o);
    release_v();
    rows.rescale_output(o);
    Mm::pack(s, p);
  }

  // The same for a block without mask, and the maximum of the block is not computed; if an
  // exponential comes out too large, all is done again with it. Until then K is needed.
  FLASH_DEVICE void optimistic_step(const Work& work, Rows& rows) {
    issue_both(work);
    float block_sum[2];
    rows.exponentiate(s, scale_log2, block_sum);
    // The barrier also keeps the wait behind the exponentials: the compiler would gladly wait first
    // and compute then, with nothing in flight.
    const bool overflow = ptx::bar_red_or(kOverflow + group, kThreads, Rows::overflowed(block_sum));
    Mm::template wait<0>(o);
    release_v();
    if (__any_sync(0xffffffffu, overflow)) {  // the vote tells the compiler that it is uniform
      Mm::issue_scores(Mm::operands(smem, work.q_buffer, group, k_ring.buffer).hidden(), s);
      Mm::template wait<0>(s);
      rows.raise(s, scale_log2);
      rows.exponentiate(s, scale_log2, block_sum);
      rows.rescale_output(o);
    }
    release_k();
    rows.add(block_sum);
    Mm::pack(s, p);
  }

  // Until the scores are there; the output is still in flight.
  FLASH_DEVICE void issue_both(const Work& work) {
    const auto operands = Mm::operands(smem, work.q_buffer, group, k_ring.buffer);
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    operands.compute_now();
    take_turn();
    Mm::issue_scores(operands, s);
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    Mm::issue_output(smem, v_ring.buffer, p, o, [&] { pass_turn(); });
    Mm::template wait<1>(s);
  }

  FLASH_DEVICE void last_output() {
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    Mm::issue_output(smem, v_ring.buffer, p, o, [] {});
    Mm::template wait<0>(o);
    release_v();
  }

  // One block after the other; the other groups' matmuls fill the tensor cores meanwhile. With
  // `ping_pong` the groups take turns at the softmax.
  FLASH_DEVICE void separate_block(const Work& work, int block, Rows& rows) {
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    Mm::issue_scores(Mm::operands(smem, work.q_buffer, group, k_ring.buffer), s);
    Mm::template wait<0>(s);
    release_k();
    take_turn();
    softmax(work, block, rows);
    Mm::pack(s, p);
    pass_turn();
    rows.rescale_output(o);
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    Mm::issue_output(smem, v_ring.buffer, p, o, [] {});
    Mm::template wait<0>(o);
    release_v();
  }

  // Blocks that no row of this group sees, though other groups' rows do. Every block of a tile is
  // one turn of every group.
  FLASH_DEVICE void skip_scores() {
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    pass_turn();
    __syncwarp();  // all lanes have seen the phase, no matmul in between brings them together
    release_k();
  }
  FLASH_DEVICE void skip_output() {
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    __syncwarp();
    release_v();
  }

  FLASH_DEVICE void softmax(const Work& work, int block, Rows& rows) {
    if (block >= work.n_whole) {
      int visible[2];  // of the block's keys, by the thread's two rows
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = work.row + warp * 16 + lane / 4 + 8 * half;
        visible[half] = n_visible_keys(args, row) - block * kBlockN;
      }
      mask_scores(s, visible, lane);
    }
    float block_sum[2];
    rows.raise(s, scale_log2);
    rows.exponentiate(s, scale_log2, block_sum);
    rows.add(block_sum);
  }

  FLASH_DEVICE void finish(const Work& work, Rows& rows) {
    float inverse[2], log_sum_exp[2];
    rows.finish(inverse, log_sum_exp);
    const Tile tile = schedule.tile(work.position);
    const int row = work.row + warp * 16;
    const uint32_t staging = smem.o(group, warp);
    if constexpr (kConfig.o_in_q) {
      ptx::bar_sync(kQRead + group, kThreads);
    } else {
      End::wait_staging_free(lane);
    }
    if (work.row >= 0) {
      End::stage(o, inverse, staging, lane);
      End::store(args, tile, row, staging, lane);
      End::store_lse(args, tile, row, log_sum_exp, lane);
    }
    if constexpr (kConfig.o_in_q) {
      End::wait_staging_free(lane);
      release_q(work.q_buffer);
    }
  }

  // One arrival per warp: the matmuls that read the buffer have completed for this warp.
  FLASH_DEVICE void release_q(int buffer) {
    if (lane == 0) ptx::mbarrier_arrive(smem.q_empty(buffer, group));
  }
  FLASH_DEVICE void release_k() {
    if (lane == 0) ptx::mbarrier_arrive(smem.k_empty(k_ring.buffer));
    k_ring.advance();
  }
  FLASH_DEVICE void release_v() {
    if (lane == 0) ptx::mbarrier_arrive(smem.v_empty(v_ring.buffer));
    v_ring.advance();
  }

  FLASH_DEVICE void take_turn() const { Turns<kConfig>::take(group); }
  FLASH_DEVICE void pass_turn() const { Turns<kConfig>::pass(group); }
};

}  // namespace flash::sm90
