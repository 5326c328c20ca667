// A consumer: one warpgroup that multiplies, exponentiates and stores 64 query rows of every tile.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm90/forward/epilogue.cuh"
#include "flash/sm90/forward/kv_blocks.cuh"
#include "flash/sm90/forward/work.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/schedule.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct Consumer {
  static constexpr int kGroups = kConfig.n_mma_groups;
  static constexpr bool kOptimistic = kConfig.max_policy == MaxPolicy::kOptimistic;
  // Behind two optimistic steps whose m was too low, ordinary ones to the next multiple of this.
  static constexpr int kPause = 16;
  using Storage = SharedStorage<kConfig>;
  using Kv = KvBlocks<kConfig>;
  using Rows = typename Kv::Rows;
  using End = Epilogue<kConfig>;

  const ForwardKernelArgs& args;
  const Storage& smem;
  const TileSchedule<kConfig> schedule;
  const int group;
  const int warp;  // of the group
  const int lane;
  RingPosition<kConfig.n_q_buffers> q_ring;
  Kv kv;

  FLASH_DEVICE Consumer(const ForwardKernelArgs& launch_args, const Storage& storage,
                        int group_index)
      : args(launch_args),
        smem(storage),
        schedule(launch_args),
        group(group_index),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        kv({launch_args}, launch_args.softmax_scale, storage, group_index, warp, lane) {}

  FLASH_DEVICE void run() {
    if constexpr (kConfig.ping_pong) {
      if (group == kGroups - 1) kv.pass_turn();  // group 0 goes first
    }
    Work work;
    while (take_tile(work)) compute_tile(work);
    if constexpr (!kConfig.o_in_q) End::wait_staging_free(lane);  // before the block's memory goes
    if constexpr (kConfig.ping_pong) {
      if (group == 0) kv.take_turn();  // the pass that the last group left behind
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
      kv.skip_scores();
      kv.skip_output();
    }
    if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
    Kv::Mm::clear(kv.o);
    Rows rows;
    finish(work, rows);
  }

  FLASH_DEVICE void compute_tile(const Work& work) {
    if (work.n_blocks == work.n_skipped) {
      empty_tile(work);
      return;
    }
    Rows rows;
    Kv::Mm::clear(kv.o);
    if constexpr (kConfig.overlap) {
      kv.first_scores(work, first_block(work), rows);
      middle_blocks(work, rows);
      kv.last_output();
    } else {
      for (int i = 0; i < work.n_skipped; ++i) {
        kv.skip_scores();
        kv.skip_output();
      }
      for (int block = first_block(work); block >= 0; --block) kv.separate_block(work, block, rows);
      if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
    }
    finish(work, rows);
  }

  FLASH_DEVICE static int first_block(const Work& work) {
    return work.n_blocks - 1 - work.n_skipped;
  }

  // All but the first scores and the last output. Q has been read then.
  FLASH_DEVICE void middle_blocks(const Work& work, Rows& rows) {
    int block = first_block(work) - 1;
    if constexpr (kOptimistic) {
      int n_optimistic = schedule.n_blocks_behind_keys(work.row);
      while (true) {
        for (; block >= n_optimistic; --block) kv.step(work, block, rows);
        if (block < 0) break;
        kv.set_limits(work, block + 1, rows);
        const int first = block;
        float block_sum[2];
        bool event = false, beyond = false;
        while (true) {
          event = kv.optimistic_exponentials(work, rows, block_sum, beyond);
          if (event) break;
          kv.end_optimistic_step(rows, block_sum);
          if (--block < 0) break;
        }
        if (!event) break;
        // Behind the loop, which it would keep from fitting the instruction cache.
        kv.mend(work, rows, block_sum, beyond);
        kv.end_optimistic_step(rows, block_sum);
        n_optimistic = block == first ? block & -kPause : block;
        --block;
      }
    } else {
      for (; block >= 0; --block) kv.step(work, block, rows);
    }
    if constexpr (!kConfig.o_in_q) release_q(work.q_buffer);
  }

  FLASH_DEVICE void finish(const Work& work, Rows& rows) {
    float inverse[2], log_sum_exp[2];
    rows.finish(inverse, log_sum_exp, kv.scale);
    const Tile tile = schedule.tile(work.position);
    const int row = work.row + warp * 16;
    const uint32_t staging = smem.o(group, warp);
    if constexpr (kConfig.o_in_q) {
      ptx::bar_sync(kQRead + group, Kv::kThreads);
    } else {
      End::wait_staging_free(lane);
    }
    if (work.row >= 0) {
      End::stage(kv.o, inverse, staging, lane);
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
};

}  // namespace flash::sm90
