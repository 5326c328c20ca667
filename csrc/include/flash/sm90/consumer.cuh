// A consumer: one warpgroup that multiplies, exponentiates and stores 64 query rows of every tile.
#pragma once

#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/wgmma.cuh"
#include "flash/sm90/epilogue.cuh"
#include "flash/sm90/mask.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/shared_storage.cuh"
#include "flash/sm90/softmax.cuh"
#include "flash/sm90/tile_schedule.cuh"
#include "flash/tile/matrix_descriptor.h"

namespace flash::sm90 {

// Named barriers; 0 is __syncthreads. Group g waits at kTurn + g for its turn to issue matmuls, and
// at kQRead + g until all its warps have read Q.
enum NamedBarrier : int { kTurn = 1, kQRead = 4 };

template <HopperForwardKernelConfig kConfig>
struct Consumer {
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr int kGroups = kConfig.n_mma_groups;
  static constexpr int kScores = kBlockN / 2;  // registers of a thread
  static constexpr int kOutputs = kConfig.d_head / 2;
  static constexpr int kSteps = kBlockN / 16;  // k-steps of P V
  using Storage = SharedStorage<kConfig>;
  using Ring = RingPosition<kConfig.n_buffers>;
  using Descriptor = MatrixDescriptor<kConfig.swizzle_bytes()>;
  using Rows = RowStatistics<kConfig.lazy_rescale>;
  using End = Epilogue<kConfig>;

  const HopperForwardArgs& args;
  const Storage& smem;
  const TileSchedule<kConfig> schedule;
  const int group;
  const int warp;  // of the group
  const int lane;
  const float scale_log2;
  Ring k_ring;
  Ring v_ring;

  FLASH_DEVICE Consumer(const HopperForwardArgs& launch_args, const Storage& storage,
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
    uint32_t q_parity = 0;
    for (int round = 0; schedule.position(round) < schedule.n_tiles; ++round) {
      const Tile tile = schedule.tile(schedule.position(round));
      const int n_blocks = schedule.n_blocks(tile);
      float o[kOutputs];
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
      Rows rows;
      wait_phase(smem.q_full(group), q_parity);
      q_parity ^= 1;
      attend(tile, n_blocks, o, rows);
      finish(tile, o, rows);
    }
    if constexpr (kConfig.ping_pong) {
      if (group == 0) take_turn();  // the pass that the last group left behind
    }
  }

 private:
  FLASH_DEVICE void attend(const Tile& tile, int n_blocks, float (&o)[kOutputs], Rows& rows) {
    const int group_row = tile.first_row + group * HopperForwardKernelConfig::kGroupRows;
    const int n_whole = schedule.n_whole_blocks(group_row);
    // Keys that the thread's two rows see.
    int visible[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      visible[half] = schedule.n_keys(group_row + warp * 16 + lane / 4 + 8 * half);
    }
    int block = n_blocks - 1;
    // Blocks that lie wholly in this group's future: other groups see them.
    for (; block >= schedule.n_visible_blocks(group_row); --block) skip_block();
    if constexpr (kConfig.overlap) {
      attend_overlapped(block, n_blocks, n_whole, visible, o, rows);
    } else {
      for (; block >= n_whole; --block) attend_block<true>(block, visible, o, rows);
      for (; block >= 0; --block) attend_block<false>(block, visible, o, rows);
      if constexpr (!kConfig.o_in_q) release_q();
    }
  }

  // The scores of one block are in flight together with the output of the block before it.
  FLASH_DEVICE void attend_overlapped(int block, int n_blocks, int n_whole, const int (&visible)[2],
                                      float (&o)[kOutputs], Rows& rows) {
    if (block < 0) {
      skip_last_output(n_blocks);
      return;
    }
    float s[kScores];
    uint32_t p[kSteps][4];
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    issue_scores(s);
    pass_turn();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(s);
    release_k();
    softmax<true>(s, rows, visible, block);
    pack_probabilities<kConfig.dtype>(s, p);
    for (--block; block >= n_whole; --block) step<true>(block, s, p, o, rows, visible);
    for (; block >= 0; --block) step<false>(block, s, p, o, rows, visible);
    if constexpr (!kConfig.o_in_q) release_q();
    take_turn();
    issue_output(p, o);
    pass_turn();
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(o);
    release_v();
  }

  // Scores and softmax of `block`, output of the block before.
  template <bool kMasked>
  FLASH_DEVICE void step(int block, float (&s)[kScores], uint32_t (&p)[kSteps][4],
                         float (&o)[kOutputs], Rows& rows, const int (&visible)[2]) {
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    issue_scores(s);
    issue_output(p, o);
    pass_turn();
    ptx::wgmma_wait_group<1>();
    ptx::wgmma_touch(s);
    release_k();
    softmax<kMasked>(s, rows, visible, block);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(o);
    release_v();
    pack_probabilities<kConfig.dtype>(s, p);
    rows.rescale_output(o);
  }

  // One block after the other; the other groups' matmuls fill the tensor cores meanwhile. With
  // `ping_pong` the groups take turns at the softmax.
  template <bool kMasked>
  FLASH_DEVICE void attend_block(int block, const int (&visible)[2], float (&o)[kOutputs],
                                 Rows& rows) {
    float s[kScores];
    uint32_t p[kSteps][4];
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    issue_scores(s);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(s);
    release_k();
    take_turn();
    softmax<kMasked>(s, rows, visible, block);
    pack_probabilities<kConfig.dtype>(s, p);
    pass_turn();
    rows.rescale_output(o);
    issue_output(p, o);
    ptx::wgmma_wait_group<0>();
    ptx::wgmma_touch(o);
    release_v();
  }

  // The rows see no key, though other groups' rows may: only the turns are taken.
  FLASH_DEVICE void skip_last_output(int n_blocks) {
    if (n_blocks > 0) {
      take_turn();
      pass_turn();
    }
    if constexpr (!kConfig.o_in_q) release_q();
  }

  FLASH_DEVICE void skip_block() {
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    pass_turn();
    release_k();
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    release_v();
  }

  template <bool kMasked>
  FLASH_DEVICE void softmax(float (&s)[kScores], Rows& rows, const int (&visible)[2], int block) {
    if constexpr (kMasked) {
      const int first_key = block * kBlockN;
      const int in_block[2] = {visible[0] - first_key, visible[1] - first_key};
      mask_scores(s, in_block, lane);
    }
    rows.raise(s, scale_log2);
    rows.template exponentiate<kMasked>(s, scale_log2);
  }

  // S = Q K^T for the K block that k_ring points to.
  FLASH_DEVICE void issue_scores(float (&s)[kScores]) {
    constexpr int kQChunk = HopperForwardKernelConfig::kGroupRows * kConfig.swizzle_bytes();
    constexpr int kKChunk = kBlockN * kConfig.swizzle_bytes();
    const auto q = Descriptor::k_major(smem.q(group));
    const auto k = Descriptor::k_major(smem.k(k_ring.buffer));
    ptx::wgmma_touch(s);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kConfig.d_head / 16; ++step) {
      ptx::Wgmma<kBlockN>::template ss<kConfig.dtype>(s, q.k_step(step, kQChunk),
                                                      k.k_step(step, kKChunk), step != 0);
    }
    ptx::wgmma_commit_group();
  }

  // O += P V for the V block that v_ring points to.
  FLASH_DEVICE void issue_output(const uint32_t (&p)[kSteps][4], float (&o)[kOutputs]) {
    constexpr int kVChunk = kBlockN * kConfig.swizzle_bytes();
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    const auto v = Descriptor::mn_major(smem.v(v_ring.buffer), kVChunk);
    ptx::wgmma_touch(o);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::Wgmma<kConfig.d_head>::template rs<kConfig.dtype>(o, p[step], v.mn_step(step), 1);
    }
    ptx::wgmma_commit_group();
  }

  FLASH_DEVICE void finish(const Tile& tile, float (&o)[kOutputs], Rows& rows) {
    float inverse[2], log_sum_exp[2];
    rows.finish(args.softmax_scale, inverse, log_sum_exp);
    const int row = tile.first_row + group * HopperForwardKernelConfig::kGroupRows + warp * 16;
    const uint32_t staging = smem.o(group, warp);
    if constexpr (kConfig.o_in_q) {
      ptx::bar_sync(kQRead + group, HopperForwardKernelConfig::kGroupThreads);
    } else {
      End::wait_staging_free(lane);
    }
    End::stage(o, inverse, staging, lane);
    End::store(args, tile, row, staging, lane);
    End::store_lse(args, tile, row, log_sum_exp, lane);
    if constexpr (kConfig.o_in_q) {
      End::wait_staging_free(lane);
      release_q();
    }
  }

  // One arrival per warp: the matmuls that read the buffer have completed for this warp.
  FLASH_DEVICE void release_q() {
    if (lane == 0) ptx::mbarrier_arrive(smem.q_empty(group));
  }
  FLASH_DEVICE void release_k() {
    if (lane == 0) ptx::mbarrier_arrive(smem.k_empty(k_ring.buffer));
    k_ring.advance();
  }
  FLASH_DEVICE void release_v() {
    if (lane == 0) ptx::mbarrier_arrive(smem.v_empty(v_ring.buffer));
    v_ring.advance();
  }

  // The groups issue matmuls one after the other, so that one's softmax runs under the others'
  // matmuls.
  FLASH_DEVICE void take_turn() const {
    if constexpr (kConfig.ping_pong) {
      ptx::bar_sync(kTurn + group, 2 * HopperForwardKernelConfig::kGroupThreads);
    }
  }
  FLASH_DEVICE void pass_turn() const {
    if constexpr (kConfig.ping_pong) {
      const int next = group + 1 == kGroups ? 0 : group + 1;
      ptx::bar_arrive(kTurn + next, 2 * HopperForwardKernelConfig::kGroupThreads);
    }
  }
};

}  // namespace flash::sm90
