// The KV blocks of a tile for one consumer: what it does with each.
//
// With `overlap`, the scores of one KV block are in flight together with the output of the block
// before it, and the softmax of the one runs under the output of the other.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90/forward/dense_mask.cuh"
#include "flash/sm90/forward/work.cuh"
#include "flash/sm90/matmuls.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90/softmax.cuh"

namespace flash::sm90 {

// `Mask`: which keys rows see, and what a tile is (dense_mask.cuh).
template <HopperForwardKernelConfig kConfig, typename Mask = DenseMask<kConfig>>
struct KvBlocks {
  using Work = typename Mask::Work;
  static constexpr int kBlockN = kConfig.block_n;
  static constexpr int kThreads = HopperForwardKernelConfig::kGroupThreads;
  using Storage = SharedStorage<kConfig>;
  using Mm = Matmuls<kConfig>;
  using Rows = RowStatistics<kConfig.max_policy>;

  const Mask mask;
  const Storage& smem;
  const int group;
  const int warp;  // of the group
  const int lane;
  const float scale;  // exponents of 2 per unit of the scores
  RingPosition<kConfig.n_buffers> k_ring;
  RingPosition<kConfig.n_buffers> v_ring;
  typename Mm::Scores s;
  typename Mm::Probabilities p;
  typename Mm::Output o;

  FLASH_DEVICE KvBlocks(const Mask& keys, float softmax_scale, const Storage& storage,
                        int group_index, int warp_of_group, int lane_of_warp)
      : mask(keys),
        smem(storage),
        group(group_index),
        warp(warp_of_group),
        lane(lane_of_warp),
        scale(softmax_scale * kLog2e) {}

  // Scores and softmax of a tile's first block that the group sees, behind `work.n_skipped` others.
  FLASH_DEVICE void first_scores(const Work& work, int block, Rows& rows) {
    for (int i = 0; i < work.n_skipped; ++i) skip_scores();
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    take_turn();
    Mm::issue_scores(Mm::operands(smem, work.q_buffer, group, k_ring.buffer), s);
    pass_turn();
    Mm::template wait<0>(s);
    release_k();
    for (int i = 0; i < work.n_skipped; ++i) skip_output();
    softmax<true>(work, block, rows);
    Mm::pack(s, p);
  }

  // Scores and softmax of `block`, output of the block before.
  FLASH_DEVICE void step(const Work& work, int block, Rows& rows) {
    issue_both(work, [&] { rows.note_large(scale); });
    release_k();
    softmax<false>(work, block, rows);
    ptx::schedule_fence();  // or ptxas waits in front of the exponentials, with nothing in flight
    Mm::template wait<0>(o);
    release_v();
    rows.rescale_output(o);
    Mm::pack(s, p);
  }

  // The same for a block without mask, and the maximum of the block is not computed. True: the
  // exponentials came out too large for their m. kCapped: scores are capped; `beyond`: this
  // thread's were too large for it.
  template <bool kCapped = false>
  FLASH_DEVICE bool optimistic_exponentials(const Work& work, Rows& rows, float (&block_sum)[2],
                                            bool& beyond) {
    issue_both(work, [] {});
    if constexpr (kCapped) {
      const float offset[2] = {rows.exponent(0, scale), rows.exponent(1, scale)};
      beyond = mask.cap_small(s, offset);
    }
    rows.template exponentiate<false, kCapped>(s, scale, block_sum);
    // The barrier also keeps the wait behind the exponentials: the compiler would gladly wait first
    // and compute then, with nothing in flight.
    const bool vote = ptx::bar_red_or(kEvent + group, kThreads, rows.exceeded(block_sum) || beyond);
    Mm::template wait<0>(o);
    release_v();
    return __any_sync(0xffffffffu, vote);  // tells the compiler that it is uniform
  }
  FLASH_DEVICE void end_optimistic_step(Rows& rows, const float (&block_sum)[2]) {
    release_k();
    rows.add(block_sum);
    Mm::pack(s, p);
  }

  // As a rule each warp brings its own rows down. Where not even fp32 holds their exponentials, the
  // group has to multiply the scores again.
  template <bool kCapped = false>
  FLASH_DEVICE void mend(const Work& work, Rows& rows, float (&block_sum)[2], bool beyond) {
    const bool lost =
        ptx::bar_red_or(kEvent + group, kThreads, rows.beyond_correction(block_sum) || beyond);
    if (__any_sync(0xffffffffu, lost)) {
      Mm::issue_scores(Mm::operands(smem, work.q_buffer, group, k_ring.buffer).hidden(), s);
      Mm::template wait<0>(s);
      if constexpr (kCapped) mask.cap(s);
      rows.raise_anyway(s, scale);
      rows.template exponentiate<true>(s, scale, block_sum);
      rows.multiply_rows(o);
    } else if (__any_sync(0xffffffffu, rows.exceeded(block_sum))) {
      rows.correct(s, block_sum, scale);
      rows.multiply_rows(o);
    }
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
    rows.note_large(scale);
    softmax<false>(work, block, rows);
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

  // For what comes behind `block`.
  FLASH_DEVICE void set_limits(const Work& work, int block, Rows& rows) const {
    rows.template set_limits<kBlockN>(mask.n_keys_from(work, block), scale);
  }

  // One turn of the group ends and the next one's begins.
  FLASH_DEVICE void take_turn() const { Turns<kConfig>::take(group); }
  FLASH_DEVICE void pass_turn() const { Turns<kConfig>::pass(group); }

 private:
  // Until the scores are there; the output is still in flight.
  template <typename Meanwhile>
  FLASH_DEVICE void issue_both(const Work& work, Meanwhile meanwhile) {
    const auto operands = Mm::operands(smem, work.q_buffer, group, k_ring.buffer);
    wait_phase(smem.k_full(k_ring.buffer), k_ring.parity);
    operands.compute_now();
    take_turn();
    Mm::issue_scores(operands, s);
    wait_phase(smem.v_full(v_ring.buffer), v_ring.parity);
    Mm::issue_output(smem, v_ring.buffer, p, o, [&] { pass_turn(); });
    meanwhile();
    Mm::template wait<1>(s);
  }

  // kFirst: of the tile's blocks.
  template <bool kFirst>
  FLASH_DEVICE void softmax(const Work& work, int block, Rows& rows) {
    mask.apply(s, work, block, warp, lane);
    float block_sum[2];
    rows.template raise<kFirst>(s, scale);
    rows.template exponentiate<true>(s, scale, block_sum);
    rows.add(block_sum);
    if constexpr (kConfig.max_policy == MaxPolicy::kLazy) {
      if (kFirst || rows.rescale) set_limits(work, block, rows);
    }
  }

  // One arrival per warp: the matmuls that read the buffer have completed for this warp.
  FLASH_DEVICE void release_k() {
    if (lane == 0) ptx::mbarrier_arrive(smem.k_empty(k_ring.buffer));
    k_ring.advance();
  }
  FLASH_DEVICE void release_v() {
    if (lane == 0) ptx::mbarrier_arrive(smem.v_empty(v_ring.buffer));
    v_ring.advance();
  }
};

}  // namespace flash::sm90
