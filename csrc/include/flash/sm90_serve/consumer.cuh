// A consumer: one warpgroup that multiplies, exponentiates and stores 64 query rows of every tile.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm90/forward/kv_blocks.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve/cleared_rows.cuh"
#include "flash/sm90_serve/epilogue.cuh"
#include "flash/sm90_serve/mask.cuh"
#include "flash/sm90_serve/packed_epilogue.cuh"
#include "flash/sm90_serve/packing.cuh"
#include "flash/sm90_serve/schedule.cuh"
#include "flash/sm90_serve/storage.cuh"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct Consumer {
  static constexpr sm90::HopperForwardKernelConfig kForward = kConfig.forward();
  static constexpr int kGroups = kConfig.n_mma_groups;
  static constexpr int kGroupRows = sm90::HopperForwardKernelConfig::kGroupRows;
  // Behind two optimistic steps whose m was too low, ordinary ones to the next multiple of this.
  static constexpr int kPause = 16;
  // Whether they may be with a soft cap. Tiles of all heads of a KV head are for few queries, wait
  // for memory, and have kernels without a register to spare.
  static constexpr bool kCaps = !kConfig.pack_gqa;
  using Kv = sm90::KvBlocks<kForward, Mask<kConfig>>;
  using Statistics = typename Kv::Rows;
  using Packed = Packing<kConfig>;
  using End = typename EndingOf<kConfig>::Type;

  const ServeKernelArgs& args;
  const Storage<kConfig>& smem;
  const int group;
  const int warp;  // of the group
  const int lane;
  sm90::RingPosition<kConfig.n_q_buffers> q_ring;
  sm90::RingPosition<kConfig.n_tiles()> slot;
  Kv kv;

  FLASH_DEVICE Consumer(const ServeKernelArgs& launch_args, const Storage<kConfig>& storage,
                        int group_index)
      : args(launch_args),
        smem(storage),
        group(group_index),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        kv({launch_args}, launch_args.call.softmax_scale, storage, group_index, warp, lane) {}

  FLASH_DEVICE void run() {
    if (group == kGroups - 1) kv.pass_turn();  // group 0 goes first
    Work work;
    while (take_tile(work)) compute_tile(work);
    End::Base::wait_staging_free(lane);  // before the block's memory goes
    if (group == 0) kv.take_turn();      // the pass that the last group left behind
  }

 private:
  // Waits for the next tile's Q.
  FLASH_DEVICE bool take_tile(Work& work) {
    sm90::wait_phase(smem.q_full(q_ring.buffer, group), q_ring.parity);
    work.tile = smem.tile(slot.buffer);
    const int tile_row = tile_word(work.tile, kRow, lane);
    if (tile_row == kNoTile) return false;
    work.row = tile_row + group * Packed::group_queries(args);
    work.q_buffer = kConfig.n_q_buffers == 1 ? 0 : uniform(q_ring.buffer);
    q_ring.advance();
    slot.advance();
    find_blocks(work);
    return true;
  }

  FLASH_DEVICE void find_blocks(Work& work) const {
    const int tile_begin = tile_word(work.tile, kBegin, lane);
    const int tile_end = tile_word(work.tile, kEnd, lane);
    const KeyRule rule = kv.mask.rule(work.tile, lane);
    work.begin = work.end = work.whole_begin = work.whole_end = tile_end;
    work.middle_end = 0;
    if (work.row >= 0 && work.row < rule.seqlen_q) {
      const int last = rule.seqlen_q - 1;
      const KeyBlocks<kConfig.block_n> blocks(
          rule, work.row, min(work.row + Packed::group_queries(args) - 1, last));
      if (blocks.begin < blocks.end) {
        work.begin = blocks.begin;
        work.end = blocks.end;
      }
      work.whole_begin = blocks.whole_begin;
      work.whole_end = blocks.whole_end;
      work.middle_end = rule.of(min(work.row + Packed::group_queries(args) / 2, last)).end;
    }
    work.n_skipped = tile_end - work.end;
    work.n_left = work.begin - tile_begin;
  }

  FLASH_DEVICE void compute_tile(const Work& work) {
    Statistics rows;
    Kv::Mm::clear(kv.o);
    if (work.begin < work.end) {
      clear_foreign_rows(work);
      kv.first_scores(work, work.end - 1, rows);
      make_uniform(kv.k_ring);
      if constexpr (kConfig.narrow_window) {
        // Its few blocks without a mask are not worth a loop of their own, nor registers.
        for (int i = work.end - 2; i >= work.begin; --i) kv.step(work, i, rows);
      } else {
        middle_blocks(work, work.end - 2, rows);
      }
      if constexpr (!kConfig.o_in_q()) release_q(work.q_buffer);
      kv.last_output();
    } else {
      if constexpr (!kConfig.o_in_q()) release_q(work.q_buffer);
    }
    const int n_left = n_blocks_left(work);
    for (int i = 0; i < n_left; ++i) {
      kv.skip_scores();
      kv.skip_output();
    }
    // No warp of the group reads Q any more, in whose place others' outputs come.
    if constexpr (kConfig.o_in_q()) ptx::bar_sync(sm90::kQRead + group, Kv::kThreads);
    finish(work, rows);
    if constexpr (kConfig.o_in_q()) {
      ptx::fence_proxy_async_shared();  // staged rows, where the next Q comes
      End::Base::wait_staging_free(lane);
      // Rows of the next Q are cleared by other warps than read what was staged in their place: the
      // mbarriers in between order that, but racecheck does not follow it.
      ptx::bar_sync(sm90::kQRead + group, Kv::kThreads);
      release_q(work.q_buffer);
    }
  }

  // Wide heads and three groups leave no register for a number that is needed once.
  FLASH_DEVICE int n_blocks_left(const Work& work) const {
    if constexpr (!kConfig.is_tight()) return work.n_left;
    return work.begin - tile_word(work.tile, kBegin, lane);
  }

  // All but the first scores and the last output. Behind optimistic steps, those at the beginning
  // of the rows' keys are ordinary again.
  FLASH_DEVICE void middle_blocks(const Work& work, int block, Statistics& rows) {
    int n_optimistic = first_optimistic(work);
    while (true) {
      for (; block >= n_optimistic; --block) kv.step(work, block, rows);
      if (block < work.begin) break;
      kv.set_limits(work, block + 1, rows);
      // Wide heads leave no registers for it.
      if constexpr (!kConfig.o_in_q()) {
        make_uniform(kv.k_ring);
        make_uniform(kv.v_ring);
        block = uniform(block);
      }
      const int first = block;
      bool event;
      if (!kCaps || args.call.softcap == 0.0f) {
        event = optimistic_steps<false>(work, block, rows);
      } else {
        event = optimistic_steps<kCaps>(work, block, rows);
      }
      if (event) {
        n_optimistic = block == first ? block & -kPause : block;
        --block;
      }
      // No whole block will be left: those at the beginning are not computed without a mask.
      if (!event || n_optimistic <= work.whole_begin) n_optimistic = work.begin;
    }
  }

  // To the last whole block, or to the one whose m, or whose scores, were beyond it (true).
  template <bool kCapped>
  FLASH_DEVICE bool optimistic_steps(const Work& work, int& block, Statistics& rows) {
    float block_sum[2];
    bool beyond = false;
    while (!kv.template optimistic_exponentials<kCapped>(work, rows, block_sum, beyond)) {
      kv.end_optimistic_step(rows, block_sum);
      if (--block < work.whole_begin) return false;
    }
    // Behind the loop, which it would keep from fitting the instruction cache.
    kv.template mend<kCapped>(work, rows, block_sum, beyond);
    kv.end_optimistic_step(rows, block_sum);
    return true;
  }

  // Blocks before this one may be computed without their maximum: those that every row sees whole,
  // behind half a block of keys or more. Without such blocks, or if soft caps are not for them: the
  // group's first.
  FLASH_DEVICE int first_optimistic(const Work& work) const {
    const int keys_of_first = kv.mask.rule(work.tile, lane).of(work.row).end;
    const int behind_keys = max(0, keys_of_first - kConfig.block_n / 2) / kConfig.block_n;
    const bool any = behind_keys > work.whole_begin && (kCaps || args.call.softcap == 0.0f);
    return any ? behind_keys : work.begin;
  }

  // Rows of Q behind the sequence's end become zeros: what they hold must not decide how the
  // others are computed.
  FLASH_DEVICE void clear_foreign_rows(const Work& work) const {
    const int n_rows = Packed::n_rows(args, tile_word(work.tile, kSeqlenQ, lane) - work.row);
    if (n_rows >= kGroupRows) return;
    constexpr int kPieces = kForward.swizzle_bytes() / 16;
    const uint32_t q = smem.q(work.q_buffer, group);
    if constexpr (kConfig.is_tight()) {
      // Nothing here that the compiler would keep in registers, of which few are left.
      clear_rows<kForward.swizzle_bytes(), kForward.n_chunks(), kGroupRows>(
          q, max(n_rows, 0), kGroupRows, warp * 32 + lane, Kv::kThreads);
      ptx::fence_proxy_async_shared();  // for the matmuls
      ptx::bar_sync(sm90::kQRead + group, Kv::kThreads);
      return;
    }
    const ptx::Vector16 zeros = {};
    for (int i = warp * 32 + lane; i < kForward.n_chunks() * kGroupRows * kPieces;
         i += Kv::kThreads) {
      if (i / kPieces % kGroupRows >= n_rows) ptx::st_shared_16<0>(q + 16 * i, zeros);
    }
    ptx::fence_proxy_async_shared();  // for the matmuls
    ptx::bar_sync(sm90::kQRead + group, Kv::kThreads);
  }

  // Tells the compiler that all lanes have the same, which it does not see behind the blocks that
  // are skipped: operands of matmuls are then computed in uniform registers.
  template <typename T>
  FLASH_DEVICE static T uniform(T value) {
    return __reduce_max_sync(0xffffffffu, value);
  }
  template <typename Ring>
  FLASH_DEVICE static void make_uniform(Ring& ring) {
    ring.buffer = uniform(ring.buffer);
    ring.parity = uniform(ring.parity);
  }

  FLASH_DEVICE void finish(const Work& work, Statistics& statistics) {
    const Rows rows = rows_of(work);
    if (work.row < 0 || rows.count <= 0) return;
    float inverse[2], log_sum_exp[2];
    statistics.finish(inverse, log_sum_exp, kv.scale);
    if (args.call.sinks != nullptr) End::add_sinks(args, rows, inverse, log_sum_exp, lane);
    const uint32_t staging = smem.o(group, warp);
    if constexpr (!kConfig.o_in_q()) End::Base::wait_staging_free(lane);
    End::Base::stage(kv.o, inverse, staging, lane);
    End::store(args, rows, staging, lane);
    End::store_lse(args, rows, log_sum_exp, lane);
  }

  // This warp's.
  FLASH_DEVICE Rows rows_of(const Work& work) const {
    const int of_group = warp * 16;
    const int row = kConfig.pack_gqa ? work.row : work.row + of_group;
    const int first = tile_word(work.tile, kQStart, lane) + row;
    const int count = Packed::n_rows(args, tile_word(work.tile, kSeqlenQ, lane) - row);
    return {.first = first,
            .count = kConfig.pack_gqa ? count - of_group : count,
            .head = tile_word(work.tile, kHead, lane),
            .batch = tile_word(work.tile, kQBatch, lane),
            .of_group = of_group};
  }

  // One arrival per warp: the matmuls that read the buffer have completed for this warp.
  FLASH_DEVICE void release_q(int buffer) {
    if (lane == 0) ptx::mbarrier_arrive(smem.q_empty(buffer, group));
  }
};

}  // namespace flash::sm90_serve
