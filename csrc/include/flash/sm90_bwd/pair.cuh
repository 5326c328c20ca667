// Two consumers with the same 64 keys, for head dimensions whose sums of dK and dV do not fit the
// registers of one: the first computes the weights P and sums dV, the second computes dS and sums
// dK. The second needs P in fp32, as the first has it: thread by thread through shared memory, in
// a ring, since both have the same scores. So the first runs ahead, and one's matmuls fill the
// tensor cores while the other exponentiates.
#pragma once

#include "flash/ptx/cluster.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/epilogue.cuh"
#include "flash/sm90_bwd/matmuls.cuh"
#include "flash/sm90_bwd/own_rows.cuh"
#include "flash/sm90_bwd/weights.cuh"
#include "flash/tile/masked_steps.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm90_bwd {

template <HopperBackwardKernelConfig kConfig, typename TheLayout, typename Own>
struct PairMember {
  using L = TheLayout;
  using Mm = Matmuls<kConfig, L>;
  using End = Epilogue<kConfig, L>;
  using Scores = typename Mm::Scores;
  static constexpr int kThreads = HopperBackwardKernelConfig::kGroupThreads;
  static constexpr int kPieces = L::kColumns / 8;  // of 16 bytes, of a thread's scores
  static_assert(L::kWeightsBytes == kPieces * kThreads * 16);

  const BackwardKernelArgs& args;
  const L& smem;
  const Own& work;
  int warp;  // of the group
  int lane;
  sm90::RingPosition<L::kStages1> ring1;  // of Q
  sm90::RingPosition<L::kStages2> ring2;  // of dO
  sm90::RingPosition<L::kWeightStages> weights_ring;
  QueryStats<L> stats;
  Place place;
  typename Mm::Weights rounded;  // P, or dS
  typename Mm::Result sums;      // dV, or dK

  FLASH_DEVICE PairMember(const BackwardKernelArgs& launch_args, const L& layout,
                          const Own& work_of_block)
      : args(launch_args),
        smem(layout),
        work(work_of_block),
        warp(__shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0)),
        lane(threadIdx.x % 32),
        stats(nullptr, 0, 0, layout.stats(0), lane),
        place{work.first, 0} {}

  // A block's scores, and what is hidden of them.
  FLASH_DEVICE typename L::Mask mask(const Place& of) const {
    return {args.call, work.first_row, of.block * L::kColumns};
  }
  FLASH_DEVICE typename L::Mask mask() const { return mask(place); }

  // All but the last of step(KnownHides), each of which moves on to the next block.
  template <typename Step>
  FLASH_DEVICE void steps(Step&& step) const {
    step_by_mask(1, work.n_steps(), [&] { return mask().hides_something; }, step);
  }

  // The thread's own.
  FLASH_DEVICE uint32_t shared_weights() const {
    return smem.weights(weights_ring.buffer) + (warp * 32 + lane) * 16;
  }

  // `parity`: of the tile.
  FLASH_DEVICE void store(float factor, uint32_t own, const TensorMap& map, const void* wanted,
                          uint32_t parity) {
    release(smem.own_read());
    sm90::wait_phase(smem.own_read(), parity);  // before own rows are overwritten
    if (wanted == nullptr) return;
    const BoxStart at{work.first_row + warp * 16, 0, static_cast<int>(work.head),
                      static_cast<int>(work.batch)};
    End::store(sums, factor, own + warp * L::kWarpBytes, map, at, lane);
    End::finish(lane);
  }

  // One arrival per warp: what it read or wrote is complete.
  FLASH_DEVICE void release(uint32_t barrier) const {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  }

  // The same for what passes by, which one of a cluster's thread blocks brings to all.
  FLASH_DEVICE void give_back(uint32_t barrier) const {
    release(barrier);
    if constexpr (L::kBlocks == 2) {
      if (lane == 0) {
        ptx::mbarrier_arrive_at_peer(ptx::peer_address(barrier, ptx::cluster_rank() ^ 1));
      }
    }
  }
};

// P = exp2(scores - log-sum-exp), dV += P^T dO.
template <HopperBackwardKernelConfig kConfig, typename TheLayout = Layout<kConfig, Variant::kKeys>,
          typename Own = Work<TheLayout>>
struct WeightsConsumer : PairMember<kConfig, TheLayout, Own> {
  using Base = PairMember<kConfig, TheLayout, Own>;
  using Base::args, Base::smem, Base::work, Base::ring1, Base::ring2, Base::weights_ring;
  using typename Base::L;
  using typename Base::Mm;

  const float scale_log2;
  typename Base::Scores p;
  OwnRows<kConfig, L, L::kHeldSteps1> keys;

  FLASH_DEVICE WeightsConsumer(const BackwardKernelArgs& launch_args, const L& layout,
                               const Own& work_of_block)
      : Base(launch_args, layout, work_of_block),
        scale_log2(launch_args.call.softmax_scale * kLog2e) {}

  // `parity`: of the tile.
  FLASH_DEVICE void multiply(uint32_t parity) {
    Mm::clear_once(Base::sums);
    begin(parity);
    Base::steps([&](auto known) {
      constexpr Hides kHides = decltype(known)::value;
      step<false, kHides>();
    });
    step<true>();
  }

  // What the tile's keys have got.
  FLASH_DEVICE void leave(uint32_t parity) {
    Base::store(1.0f, smem.own2(0), args.d_own2, args.call.d_v, parity);
    if constexpr (L::kStays) Base::release(smem.own2_empty());
  }

 private:
  // One block of queries, whose scores are being multiplied. Ends with those of the next. Of the
  // last, nobody waits for what is given back.
  template <bool kIsLast, Hides kHides = Hides::kMaybe>
  FLASH_DEVICE void step() {
    Mm::template wait<0>(p);
    exponentiate<kHides>();
    share();
    Mm::pack(p, Base::rounded);
    sm90::wait_phase(smem.full2(ring2.buffer), ring2.parity);
    Mm::issue_sum(Base::rounded, smem.other2(ring2.buffer), Base::sums);
    if constexpr (kIsLast) {
      Mm::template wait<0>(Base::sums);
    } else {
      Base::give_back(smem.empty1(ring1.buffer));
      ring1.advance();
      Base::place.advance(work);
      issue_scores();
      Mm::template wait<1>(Base::sums);
      Base::give_back(smem.empty2(ring2.buffer));
      ring2.advance();
    }
  }

 protected:
  // The first block's scores. `parity`: of the tile.
  FLASH_DEVICE void begin(uint32_t parity) {
    sm90::wait_phase(smem.own1_full(), parity);
    keys.load(smem.own1(0), Base::warp, Base::lane);
    issue_scores();
  }

  FLASH_DEVICE void issue_scores() {
    sm90::wait_phase(smem.full1(ring1.buffer), ring1.parity);
    keys.issue_products(smem.own1(0), smem.other1(ring1.buffer), p);
  }

  template <Hides kHides>
  FLASH_DEVICE void exponentiate() {
    const typename L::Mask mask = known_mask<kHides>(Base::mask());
    Base::stats.enter(ring1.buffer);
    Base::stats.for_each([&](int i, const RowStats& row) {
      p[i] = ptx::ex2(ptx::fma_rn(p[i], scale_log2, -row.lse_log2));
    });
    if (mask.hides_something) {
      hide(p, args.call, mask, Base::warp * 16 + Base::lane / 4, Base::lane % 4 * 2);
    }
  }

  FLASH_DEVICE void share() {
    sm90::wait_phase(smem.weights_empty(weights_ring.buffer), weights_ring.parity ^ 1);
    const uint32_t to = Base::shared_weights();
    static_for<0, Base::kPieces>([&](auto piece) {
      constexpr int kFirst = piece * 4;
      ptx::st_shared_16<piece * Base::kThreads * 16>(
          to, {{__float_as_uint(p[kFirst]), __float_as_uint(p[kFirst + 1]),
                __float_as_uint(p[kFirst + 2]), __float_as_uint(p[kFirst + 3])}});
    });
    // Behind its RowStats, too: the other group gives Q back, with which they go, when it has
    // waited for this.
    ptx::mbarrier_arrive(smem.weights_full(weights_ring.buffer));
    weights_ring.advance();
  }
};

// dS = P (dP - dot), dK += dS^T Q.
template <HopperBackwardKernelConfig kConfig, typename TheLayout = Layout<kConfig, Variant::kKeys>,
          typename Own = Work<TheLayout>>
struct ScoresConsumer : PairMember<kConfig, TheLayout, Own> {
  using Base = PairMember<kConfig, TheLayout, Own>;
  using Base::args, Base::smem, Base::work, Base::ring1, Base::ring2, Base::weights_ring;
  using typename Base::L;
  using typename Base::Mm;

  typename Base::Scores d_s;
  OwnRows<kConfig, L, L::kHeldSteps2> values;
  typename L::DsWriter ds;

  FLASH_DEVICE ScoresConsumer(const BackwardKernelArgs& launch_args, const L& layout,
                              const Own& work_of_block)
      : Base(launch_args, layout, work_of_block) {}

  FLASH_DEVICE void multiply(uint32_t parity) {
    Base::place = {work.first, 0};
    Mm::clear_once(Base::sums);
    sm90::wait_phase(smem.own2_full(), parity);
    values.load(smem.own2(0), Base::warp, Base::lane);
    issue_gradients();
    Base::steps([&](auto known) {
      constexpr Hides kHides = decltype(known)::value;
      step<false, kHides>();
    });
    step<true>();
  }

  FLASH_DEVICE void leave(uint32_t parity) {
    Base::store(args.call.softmax_scale, smem.own1(0), args.d_own1, args.call.d_k, parity);
    if constexpr (L::kStays) Base::release(smem.own1_empty());
  }

 private:
  // One block of queries, the gradients of whose weights are being multiplied. Ends with those of
  // the next.
  template <bool kIsLast, Hides kHides = Hides::kMaybe>
  FLASH_DEVICE void step() {
    constexpr bool kIsAwaited = !kIsLast || L::kStays;  // what is given back
    const uint32_t q = smem.other1(ring1.buffer);
    Mm::template wait<0>(d_s);
    if constexpr (kIsAwaited) Base::give_back(smem.empty2(ring2.buffer));
    ring2.advance();
    sm90::wait_phase(smem.full1(ring1.buffer), ring1.parity);
    sm90::wait_phase(smem.weights_full(weights_ring.buffer), weights_ring.parity);
    differentiate<kHides>();
    if constexpr (kIsAwaited) {
      __syncwarp();  // all lanes have read their RowStats, which go with Q
      ptx::mbarrier_arrive(smem.weights_empty(weights_ring.buffer));
      weights_ring.advance();
    }
    Mm::pack(d_s, Base::rounded);
    if constexpr (L::kSharesDs) ds.write(smem, Base::rounded, Base::warp, Base::lane);
    Mm::issue_sum(Base::rounded, q, Base::sums);
    if constexpr (L::kSharesDs) ds.share(smem, Base::warp, Base::lane);
    if constexpr (kIsLast) {
      Mm::template wait<0>(Base::sums);
    } else {
      Base::place.advance(work);
      issue_gradients();
      Mm::template wait<1>(Base::sums);
    }
    if constexpr (kIsAwaited) {
      Base::give_back(smem.empty1(ring1.buffer));
      ring1.advance();
    }
  }

  FLASH_DEVICE void issue_gradients() {
    sm90::wait_phase(smem.full2(ring2.buffer), ring2.parity);
    values.issue_products(smem.own2(0), smem.other2(ring2.buffer), d_s);
  }

  template <Hides kHides>
  FLASH_DEVICE void differentiate() {
    const typename L::Mask mask = known_mask<kHides>(Base::mask());
    const uint32_t from = Base::shared_weights();
    typename Base::Scores p;
    static_for<0, Base::kPieces>([&](auto piece) {
      const ptx::Vector16 four = ptx::ld_shared_16<piece * Base::kThreads * 16>(from);
#pragma unroll
      for (int i = 0; i < 4; ++i) p[piece * 4 + i] = __uint_as_float(four.word[i]);
    });
    Base::stats.enter(ring1.buffer);
    Base::stats.for_each([&](int i, const RowStats& row) {
      const float d_score = p[i] * (d_s[i] - row.dot);
      // What belongs to a key that the query does not see may be infinite.
      d_s[i] = mask.hides_something && p[i] == 0.0f ? 0.0f : d_score;
    });
  }
};

}  // namespace flash::sm90_bwd
