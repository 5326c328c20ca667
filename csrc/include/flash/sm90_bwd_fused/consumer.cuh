// A consumer of the fused kernel: one warpgroup with 64 keys.
//
// Its keys are the A operand of the scores, so that P and dS are, rounded, the A operands of the
// sums dV and dK; dS goes through shared memory as well, for dQ, which needs the keys of all
// groups. A block's dQ is multiplied one block late, so that no group waits for the other's dS.
// Either the groups take turns with P and dS, and the tensor cores have the other's matmuls
// meanwhile; or each splits the two, and computes P under dP and dS under dV, and group 1 begins
// when group 0 has its first dS.
#pragma once

#include "flash/ptx/fence.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/matmuls.cuh"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/gradient_rows.cuh"
#include "flash/sm90_bwd_fused/named_barriers.h"
#include "flash/sm90_bwd_fused/query_sums.cuh"
#include "flash/sm90_bwd_fused/split_heads.cuh"
#include "flash/sm90_bwd_fused/sums_rounder.cuh"
#include "flash/sm90_bwd_fused/sums_sender.cuh"
#include "flash/sm90_bwd_fused/tiles.cuh"
#include "flash/sm90_bwd_fused/weighing.cuh"
#include "flash/tile/masked_steps.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm90_bwd_fused {

template <FusedBackwardKernelConfig kConfig, typename L>
struct Consumer : Weighing<kConfig, L> {
  using Base = Weighing<kConfig, L>;
  using Base::args, Base::smem, Base::group, Base::warp, Base::lane, Base::work, Base::place;
  using Base::p, Base::d_s, Base::weights, Base::d_weights, Base::stats;
  using typename Base::Calls;
  using typename Base::Mm;
  using Adder = QuerySumsAdder<kConfig, L>;
  using Gradients = typename GradientsOf<kConfig, Calls::kSplitsHeads>::Type;
  static constexpr int kGroupThreads = sm90_bwd::HopperBackwardKernelConfig::kGroupThreads;
  static constexpr int kThreads = FusedBackwardKernelConfig::kGroups * kGroupThreads;
  static_assert(FusedBackwardKernelConfig::kGroups == 2, "two groups take turns");
  static constexpr bool kSplits = kConfig.splits();
  static constexpr bool kStages = kConfig.copies();
  static constexpr bool kDelaysSums = kConfig.delays_sums();

  const Adder d_q;
  const GradientRows<kConfig, L> rows;
  sm90::RingPosition<L::kStages1> ring;  // of Q and dO
  sm90::RingPosition<L::kDsStages> ds_ring;
  Place place_before;  // of the block of queries before this one
  StagedSums<L> staged;
  WarpTile<L> tile;
  typename Mm::Result d_k;
  typename Mm::Result d_v;
  typename Adder::Sums d_q_sums;

  FLASH_DEVICE Consumer(const BackwardKernelArgs& launch_args, const L& layout, int group_index)
      : Base(launch_args, layout, group_index),
        d_q{{}, layout, group, warp, lane},
        rows{launch_args, layout, group, warp, lane},
        staged{layout, group_index},
        tile{layout, layout.kept(group * L::kGroupWarps + warp), lane} {}

  // A tile; `parity`: of "full" of K and V.
  FLASH_DEVICE void run(const typename L::Work& work_of_tile, uint32_t parity) {
    work = &work_of_tile;
    place = {work->first, 0};
    staged.begin_tile();
    const int n_steps = work->n_steps();
    if (!L::kStays && n_steps == 0) return rows.store_zeros(*work);
    Mm::clear(d_k);
    Mm::clear(d_v);
    // Group 0 goes first.
    if (!kSplits && group == 1) pass_turn();
    if (kSplits && group == 1) await_turn();
    sm90::wait_phase(smem.own1_full(), parity);
    issue_scores();
    sm90::wait_phase(smem.own2_full(), parity);
    if constexpr (!kSplits) issue_gradients();
    if (n_steps == 1) {
      step<true, true>();
    } else {
      step<true, false>();
      steps_between(n_steps);
      step<false, true>();
    }
    end();
  }

  // All warps of the group have come so far. Not `group`: uniform registers are taken.
  FLASH_DEVICE void meet() const {
    ptx::bar_sync(kGroup + threadIdx.x / kGroupThreads - 1, kGroupThreads);
  }

 private:
  // All but the first and the last. Groups that take turns have two loops; of split ones ptxas
  // serialises the matmuls then, or orders a step worse.
  FLASH_DEVICE void steps_between(int n_steps) {
    if constexpr (kSplits) {
      for (int i = 2; i < n_steps; ++i) step<false, false>();
    } else {
      const auto hides = [&] { return Base::mask().hides_something; };
      step_by_mask(2, n_steps, hides, [&](auto known) {
        constexpr Hides kHides = decltype(known)::value;
        step<false, false, kHides>();
      });
    }
  }

  // One block of queries, whose scores, and without kSplits gradients of weights, are being
  // multiplied. Ends with the same of the next block.
  template <bool kIsFirst, bool kIsLast, Hides kHides = Hides::kMaybe>
  FLASH_DEVICE void step() {
    const uint32_t q = smem.other1(ring.buffer);
    const uint32_t d_o = smem.other2(ring.buffer);
    const typename L::Mask mask = known_mask<kHides>(Base::mask());
    const bool ds_free =
        is_over<!(kDelaysSums && kIsLast)>(smem.ds_empty(ds_ring.buffer), ds_ring.parity ^ 1);
    if constexpr (kSplits) {
      const bool d_o_there = is_over(smem.full2(ring.buffer), ring.parity);
      stats.enter(ring.buffer);
      typename Base::LseAhead lse_log2;
      stats.load_lse_log2(lse_log2);
      Mm::template wait<0>(p);
      issue_gradients(d_o_there);
      this->weigh(Base::rule(), mask, lse_log2);
      if constexpr (!kDelaysSums) Mm::issue_sum(weights, d_o, d_v);
      typename Base::DotsAhead dots;
      stats.load_dots(dots);
      Mm::template wait<kDelaysSums ? 0 : 1>(d_s);
      this->derive(Base::rule(), mask, dots);
      if constexpr (kDelaysSums) Mm::issue_sum(weights, d_o, d_v);
      if (kIsFirst && group == 0) pass_turn();  // group 1 begins
    } else {
      stats.enter(ring.buffer);
      typename Base::PairsAhead ahead;
      stats.load(ahead);
      Mm::template wait<0>(p);
      ptx::wgmma_touch(d_s);
      await_turn();
      this->differentiate(Base::rule(), mask, ahead);
      if (!kIsLast || group == 0) pass_turn();
      Mm::issue_sum(weights, d_o, d_v);
    }
    const auto before = ds_ring.before();
    const bool ds_there = is_over<!kIsFirst>(smem.ds_full(before.buffer), before.parity);
    write_ds(ds_free);
    Mm::issue_sum(d_weights, q, d_k);
    if constexpr (!kIsFirst) issue_d_q(ds_there);
    share_ds<kIsFirst>();  // here, as its fence then waits while these are multiplied
    finish_sums<kIsFirst, kIsLast>();
  }

  // Waits for dV and dK, and dQ of the block before; begins with the next block.
  template <bool kIsFirst, bool kIsLast>
  FLASH_DEVICE void finish_sums() {
    auto next = ring;
    next.advance();
    const Place here = place;
    if constexpr (!kIsLast) place.advance(*work);
    const bool q_there = is_over<!kIsLast>(smem.full1(next.buffer), next.parity);
    Mm::template wait<kIsFirst ? 0 : 1>(d_k);
    ptx::wgmma_touch(d_v);
    release(smem.empty1(ring.buffer));
    release(smem.empty2(ring.buffer));
    ring = next;
    if constexpr (!kIsLast) issue_scores(q_there);
    if constexpr (!kIsFirst) {
      await_d_q<kIsLast ? 0 : 1>();
      release(smem.ds_empty(ds_ring.before().buffer));
      add_d_q();
    }
    place_before = here;
    if constexpr (!kIsLast && !kSplits) issue_gradients();
    ds_ring.advance();
  }

  FLASH_DEVICE void await_turn() const { ptx::bar_sync(kTurn + group, kThreads); }
  FLASH_DEVICE void pass_turn() const { ptx::bar_arrive(kTurn + 1 - group, kThreads); }

  // Whether a phase is over, which is waited for later if not. Split groups alone look ahead.
  template <bool kWanted = true>
  FLASH_DEVICE bool is_over(uint32_t barrier, uint32_t parity) const {
    return kSplits && kWanted && ptx::mbarrier_test_wait(barrier, parity);
  }

  // K and V: their addresses are worked out where they are used, not kept from block to block.
  FLASH_DEVICE void issue_scores(bool q_there = false) {
    if (!q_there) sm90::wait_phase(smem.full1(ring.buffer), ring.parity);
    Mm::issue_products(ptx::hidden(smem.own1(group)), smem.other1(ring.buffer), p);
  }

  FLASH_DEVICE void issue_gradients(bool d_o_there = false) {
    if (!d_o_there) sm90::wait_phase(smem.full2(ring.buffer), ring.parity);
    Mm::issue_products(ptx::hidden(smem.own2(group)), smem.other2(ring.buffer), d_s);
  }

  // The group's part of dS; then, behind share_ds, it is for all groups.
  FLASH_DEVICE void write_ds(bool ds_free) const {
    if (!ds_free) sm90::wait_phase(smem.ds_empty(ds_ring.buffer), ds_ring.parity ^ 1);
    const int own = kSplits && !kDelaysSums ? lane : static_cast<int>(ptx::hidden(lane));
    store_transposed(d_weights, transposed_address(smem.ds(ds_ring.buffer, group), warp, own));
  }
  template <bool kIsFirst>
  FLASH_DEVICE void share_ds() const {
    ptx::fence_proxy_async_shared();  // dS, for the matmuls, and sums of dQ, for the copy engine
    __syncwarp();                     // ... of all lanes
    release(smem.ds_full(ds_ring.buffer));
    if constexpr (kStages && !kIsFirst) staged.hand_over();
  }

  // Of the block before, whose place in the ring is the one before.
  FLASH_DEVICE void issue_d_q(bool ds_there = false) {
    const auto before = ds_ring.before();
    if (!ds_there) sm90::wait_phase(smem.ds_full(before.buffer), before.parity);
    d_q.issue(before.buffer, d_q_sums);
  }
  // Split groups look for room while dQ is being multiplied.
  template <int kInFlight>
  FLASH_DEVICE void await_d_q() {
    if constexpr (kStages && kSplits) staged.await_room();
    Mm::template wait<kInFlight>(d_q_sums);
  }
  FLASH_DEVICE void add_d_q() {
    if constexpr (kStages) {
      if constexpr (!kSplits) staged.await_room();
      leave_d_q();
      staged.filled();
    } else {
      const int row = SumsRows<L>(args.call, *work).row(place_before);
      d_q.add(d_q_sums, sums_of_row<kConfig>(args.call, row));
    }
  }

  // In a staging buffer: the sums, or where nobody adds behind this thread block, rows of dQ.
  FLASH_DEVICE void leave_d_q() {
    if constexpr (L::kInOrder) {
      // The vote says to ptxas that all lanes go the same way: else it takes what they compute
      // behind the branches, the descriptors of matmuls, for their own.
      const int queries = place_before.block;
      const bool rounds = __any_sync(0xffffffffu, d_q.has_part() && work->is_last(queries));
      const uint32_t part = d_q.part(staged.buffer);
      if (rounds && work->number(queries) > 0) {
        sm90::wait_phase(smem.sums_full(staged.buffer), tile.next_parity(staged.buffer));
        RoundedSums<kConfig>::add(d_q_sums, part, lane);
      }
      __syncwarp();  // all lanes have read the others' sums
      if (rounds) {
        return RoundedSums<kConfig>::round(d_q_sums, part, args.call.softmax_scale, lane);
      }
    }
    d_q.stage(d_q_sums, staged.buffer);
  }

  // dQ of the last block; and dV and dK on their way, so that what comes next can be loaded.
  FLASH_DEVICE void end() {
    const bool shares = gradients().are_shared();
    issue_d_q();
    staged.fence_and_hand_over();
    if (shares) {
      gradients().leave(HeadGradient::kDv, d_v);
    } else if constexpr (!Adder::kReadsBehindKeys) {
      meet();  // the group has multiplied by V
      rows.store_d_v(own_work(), d_v);
    }
    await_d_q<0>();
    if constexpr (L::kStays) release(smem.own1_empty());
    const auto last = ds_ring.before();
    release(smem.ds_empty(last.buffer));
    add_d_q();
    staged.fence_and_hand_over();
    if (!Adder::kReadsBehindKeys && !shares) rows.give_v_back();
    sm90::wait_phase(smem.ds_empty(last.buffer), last.parity);  // all have multiplied
    if (shares) {
      gradients().leave(HeadGradient::kDk, d_k);
      if (!gradients().is_last(smem.ds(0))) return rows.give_v_back();
      gradients().add_up(HeadGradient::kDv, d_v);
    }
    if (Adder::kReadsBehindKeys || shares) {
      rows.store_d_v(own_work(), d_v);
      rows.give_v_back();
    }
    if (shares) gradients().add_up(HeadGradient::kDk, d_k);
    rows.store_d_k(own_work(), d_k);
  }
  FLASH_DEVICE Gradients gradients() const { return {args.call, own_work()}; }
  // Its rows: read again, where the tile is kept, instead of held in registers until then.
  FLASH_DEVICE typename L::Work own_work() const {
    if constexpr (L::kStays) return {args.call, tile.get()};
    return *work;
  }

  // One arrival per warp: what it read or wrote is complete.
  FLASH_DEVICE void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }
};

}  // namespace flash::sm90_bwd_fused
