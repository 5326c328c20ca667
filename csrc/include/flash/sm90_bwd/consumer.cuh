// A consumer: one warpgroup that owns 64 of the rows that stay.
//
// Own rows are the A operand of the scores, so that their accumulators are, rounded, the A operand
// of the sums: P and dS never leave the registers. While one group exponentiates, the others'
// matmuls fill the tensor cores.
#pragma once

#include "flash/ptx/named_barrier.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/epilogue.cuh"
#include "flash/sm90_bwd/matmuls.cuh"
#include "flash/sm90_bwd/weights.cuh"
#include "flash/tile/masked_steps.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm90_bwd {

// 0 is __syncthreads; kOwnRead + g: all warps of group g have read the rows that stay.
enum NamedBarrier : int { kOwnRead = 1 };

template <HopperBackwardKernelConfig kConfig, Variant kVariant>
struct Consumer {
  using L = Layout<kConfig, kVariant>;
  using Mm = Matmuls<kConfig, L>;
  using End = Epilogue<kConfig, L>;
  static constexpr int kThreads = HopperBackwardKernelConfig::kGroupThreads;
  // dV is issued as soon as P is there, and dS is computed under it, where the registers hold both
  // results, P and dS in fp32, and P and dS in 16 bits. ptxas serialises the matmuls beyond that.
  static constexpr bool kEarlySum = kConfig.d_head + 3 * L::kColumns / 2 <= 224;
  // Heads of up to 128 elements have no registers for a loop more, and their matmuls are
  // serialised.
  static constexpr bool kByMask = kConfig.splits_sums(Variant::kKeys);

  const BackwardKernelArgs& args;
  const L& smem;
  const Work<L>& work;
  const int group;
  const int warp;  // of the group
  const int lane;
  const int group_row;  // the group's first
  const float scale_log2;
  sm90::RingPosition<L::kStages1> ring1;
  sm90::RingPosition<L::kStages2> ring2;
  QueryStats<L> stats;
  typename Mm::Scores p;
  typename Mm::Scores d_s;
  typename Mm::Weights weights;    // P in 16 bits
  typename Mm::Weights d_weights;  // dS in 16 bits
  typename Mm::Result d_own1;
  typename Mm::Result d_own2;  // of keys

  FLASH_DEVICE Consumer(const BackwardKernelArgs& launch_args, const L& layout,
                        const Work<L>& work_of_block, int group_index)
      : args(launch_args),
        smem(layout),
        work(work_of_block),
        group(group_index),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        group_row(work.first_row + group * HopperBackwardKernelConfig::kGroupRows),
        scale_log2(launch_args.call.softmax_scale * kLog2e),
        stats(head_stats(), group_row + warp * 16 + lane / 4, launch_args.call.seqlen_q,
              layout.stats(0), lane) {}

  FLASH_DEVICE void run() {
    Mm::clear(d_own1);
    Mm::clear(d_own2);
    const int n_steps = work.n_steps();
    if (n_steps > 0) {
      sm90::wait_phase(smem.own1_full(), 0);
      sm90::wait_phase(smem.own2_full(), 0);
      Place place{work.begin, 0};
      const auto step_of = [&](auto known) {
        constexpr Hides kHides = decltype(known)::value;
        step<kHides>(place.block * L::kColumns);
        ring1.advance();
        ring2.advance();
        place.advance(work);
      };
      const auto hides = [&] { return mask(place.block * L::kColumns).hides_something; };
      if constexpr (kByMask) {
        step_by_mask(0, n_steps, hides, step_of);
      } else {
        for (int i = 0; i < n_steps; ++i) step_of(KnownHides<Hides::kMaybe>{});
      }
    }
    store();
  }

 private:
  FLASH_DEVICE const RowStats* head_stats() const {
    const BackwardArgs& call = args.call;
    const int64_t head = work.batch * call.n_heads_q + work.head;
    return reinterpret_cast<const RowStats*>(call.row_stats) + head * row_stats_rows(call.seqlen_q);
  }

  FLASH_DEVICE typename L::Mask mask(int first_column) const {
    return {args.call, group_row, first_column};
  }

  template <Hides kHides>
  FLASH_DEVICE void step(int first_column) {
    const uint32_t other1 = smem.other1(ring1.buffer);
    const uint32_t other2 = smem.other2(ring2.buffer);
    sm90::wait_phase(smem.full1(ring1.buffer), ring1.parity);
    Mm::issue_products(smem.own1(group), other1, p);
    sm90::wait_phase(smem.full2(ring2.buffer), ring2.parity);
    Mm::issue_products(smem.own2(group), other2, d_s);
    Mm::template wait<1>(p);
    const typename L::Mask mask = known_mask<kHides>(this->mask(first_column));
    stats.enter(ring1.buffer);
    exponentiate(mask);
    if constexpr (L::kOwnsKeys) {
      sum_both(mask, other1, other2);
    } else {
      sum_first(mask, other1);
    }
  }

  // dQ.
  FLASH_DEVICE void sum_first(const typename L::Mask& mask, uint32_t other1) {
    ptx::schedule_fence();  // or ptxas waits in front of the exponentials
    Mm::template wait<0>(d_s);
    release_second();
    differentiate(mask);
    Mm::pack(d_s, d_weights);
    Mm::issue_sum(d_weights, other1, d_own1);
    Mm::template wait<0>(d_own1);
    release_first();
  }

  // dV and dK.
  FLASH_DEVICE void sum_both(const typename L::Mask& mask, uint32_t other1, uint32_t other2) {
    if constexpr (kEarlySum) {
      Mm::pack(p, weights);
      Mm::issue_sum(weights, other2, d_own2);
      Mm::template wait<1>(d_s);
      differentiate(mask);
    } else {
      ptx::schedule_fence();
      Mm::template wait<0>(d_s);
      differentiate(mask);
      Mm::pack(p, weights);
      Mm::issue_sum(weights, other2, d_own2);
    }
    Mm::pack(d_s, d_weights);
    Mm::issue_sum(d_weights, other1, d_own1);
    Mm::template wait<0>(d_own1);
    ptx::wgmma_touch(d_own2);
    release_second();  // no earlier: the producer waits for the other buffer first
    release_first();
  }

  FLASH_DEVICE void exponentiate(const typename L::Mask& mask) {
    stats.for_each([&](int i, const RowStats& row) {
      p[i] = ptx::ex2(ptx::fma_rn(p[i], scale_log2, -row.lse_log2));
    });
    if (mask.hides_something) {
      hide(p, args.call, mask, warp * 16 + lane / 4, lane % 4 * 2);
    }
  }

  FLASH_DEVICE void differentiate(const typename L::Mask& mask) {
    stats.for_each([&](int i, const RowStats& row) {
      const float d_score = p[i] * (d_s[i] - row.dot);
      // What belongs to a key that the query does not see may be infinite.
      d_s[i] = mask.hides_something && p[i] == 0.0f ? 0.0f : d_score;
    });
  }

  // Gradients of rows that exist; staged in the place of the rows that stay.
  FLASH_DEVICE void store() {
    ptx::bar_sync(kOwnRead + group, kThreads);
    const uint32_t staging = warp * L::kWarpBytes;
    const auto write = [&](const typename Mm::Result& result, float factor, uint32_t own,
                           const TensorMap& map, const void* wanted) {
      if (wanted == nullptr) return;
      const BoxStart at{group_row + warp * 16, 0, static_cast<int>(work.head),
                        static_cast<int>(work.batch)};
      End::store(result, factor, own + staging, map, at, lane);
    };
    const BackwardArgs& call = args.call;
    write(d_own1, call.softmax_scale, smem.own1(group), args.d_own1,
          L::kOwnsKeys ? call.d_k : call.d_q);
    if constexpr (L::kOwnsKeys) write(d_own2, 1.0f, smem.own2(group), args.d_own2, call.d_v);
    End::finish(lane);
  }

  // One arrival per warp: the matmuls that read the buffer have completed for this warp.
  FLASH_DEVICE void release_first() const {
    if constexpr (L::kOwnsKeys) __syncwarp();  // all lanes have read their RowStats
    release(smem.empty1(ring1.buffer));
  }
  FLASH_DEVICE void release_second() const { release(smem.empty2(ring2.buffer)); }
  FLASH_DEVICE void release(uint32_t empty) const {
    if (lane == 0) ptx::mbarrier_arrive(empty);
  }
};

}  // namespace flash::sm90_bwd
