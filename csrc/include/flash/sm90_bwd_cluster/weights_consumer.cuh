// P and dV of a thread block of a pair, with the next block's scores multiplied first.
#pragma once

#include "flash/sm90_bwd/pair.cuh"
#include "flash/sm90_bwd_cluster/layout.cuh"

namespace flash::sm90_bwd_cluster {

// The two-pass kernel's, in another order: of two matmuls that are in flight together the scores of
// the next block come first, so that it is exponentiated while the other, of dV, still runs.
template <ClusterBackwardKernelConfig kConfig>
struct WeightsConsumer
    : sm90_bwd::WeightsConsumer<kConfig.two_pass(), Layout<kConfig>, PairWork<kConfig>> {
  using Base = sm90_bwd::WeightsConsumer<kConfig.two_pass(), Layout<kConfig>, PairWork<kConfig>>;
  using Base::args, Base::smem, Base::work, Base::ring1, Base::ring2, Base::p, Base::rounded,
      Base::sums;
  using typename Base::Mm;

  using Base::Base;

  // `parity`: of the tile.
  FLASH_DEVICE void multiply(uint32_t parity) {
    Base::place = {work.first, 0};
    Mm::clear_once(sums);
    Base::begin(parity);
    Mm::template wait<0>(p);
    weigh<Hides::kMaybe>();
    Mm::pack(p, rounded);
    const auto hides = [&] { return next_hides(); };
    step_by_mask(1, work.n_steps(), hides, [&](auto known) {
      constexpr Hides kHides = decltype(known)::value;
      step<kHides>();
    });
    Base::give_back(smem.empty1(ring1.buffer));
    ring1.advance();
    issue_sum();
    Mm::template wait<0>(sums);
    Base::give_back(smem.empty2(ring2.buffer));
    ring2.advance();
  }

 private:
  FLASH_DEVICE bool next_hides() const {
    Place next = Base::place;
    next.advance(work);
    return Base::mask(next).hides_something;
  }

  // From one block's weights to those of the next.
  template <Hides kHides>
  FLASH_DEVICE void step() {
    Base::give_back(smem.empty1(ring1.buffer));
    ring1.advance();
    Base::place.advance(work);
    Base::issue_scores();
    issue_sum();
    Mm::template wait<1>(p);
    weigh<kHides>();
    Mm::template wait<0>(sums);
    Base::give_back(smem.empty2(ring2.buffer));
    ring2.advance();
    Mm::pack(p, rounded);  // no matmul reads them any more
  }

  template <Hides kHides>
  FLASH_DEVICE void weigh() {
    Base::template exponentiate<kHides>();
    Base::share();
  }

  FLASH_DEVICE void issue_sum() {
    sm90::wait_phase(smem.full2(ring2.buffer), ring2.parity);
    Mm::issue_sum(rounded, smem.other2(ring2.buffer), sums);
  }
};

}  // namespace flash::sm90_bwd_cluster
