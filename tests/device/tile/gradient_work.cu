// Which thread block of a backward pass meets which scores: tile/gradient_work.cuh, in loops by
// what is hidden: tile/masked_steps.cuh.
#include "flash/tile/gradient_work.cuh"
#include "flash/tile/masked_steps.cuh"

using namespace flash;

template <bool kKeys, bool kApart>
struct Blocks {
  static constexpr bool kOwnsKeys = kKeys;
  static constexpr unsigned kSectionBlocks = flash::kSectionBlocks;
  static constexpr bool kStaggers = kApart;
  static constexpr bool kInOrder = false;
  static constexpr int kRows = 32;
  static constexpr int kColumns = 16;
};

// met[batch][query head][query][key] counts how often a block meets the score, and sees it: 1
// thread for each of its rows.
template <bool kOwnsKeys, bool kStaggers = false>
__device__ void meet(const BackwardArgs& args, int* met) {
  using L = Blocks<kOwnsKeys, kStaggers>;
  const Work<L> work(args, blockIdx.x);
  const int row = static_cast<int>(threadIdx.x);
  Place place{work.first, 0};
  using Mask = BlockMask<kOwnsKeys, L::kRows, L::kColumns>;
  const auto mask_of_place = [&] { return Mask(args, work.first_row, place.block * L::kColumns); };
  const auto hides = [&] { return mask_of_place().hides_something; };
  step_by_mask(0, work.n_steps(), hides, [&](auto known) {
    constexpr Hides kHides = decltype(known)::value;
    static_assert(kHides != Hides::kMaybe);
    const Mask mask = known_mask<kHides>(mask_of_place());
    const int first_column = place.block * L::kColumns;
    const auto seen = mask.seen(args, row, 0);
    const int64_t own = work.own_head();
    const int64_t head = kOwnsKeys ? own * work.n_heads + place.head : own;
    int* of_head = met + (work.batch * args.n_heads_q + head) * args.seqlen_q * args.seqlen_k;
    for (int column = 0; column < L::kColumns; ++column) {
      const int other = first_column + column;
      const int query = kOwnsKeys ? other : work.first_row + row;
      const int key = kOwnsKeys ? work.first_row + row : other;
      if (row >= work.n_rows || query >= args.seqlen_q || key >= args.seqlen_k) continue;
      const bool counts = !place.is_behind(work) && (!mask.hides_something || seen.at(0, column));
      of_head[int64_t{query} * args.seqlen_k + key] += counts ? 1 : 0;
    }
    place.advance(work);
  });
}

extern "C" __global__ void keys(const __grid_constant__ BackwardArgs args, int* met) {
  meet<true>(args, met);
}
extern "C" __global__ void queries(const __grid_constant__ BackwardArgs args, int* met) {
  meet<false>(args, met);
}
extern "C" __global__ void keys_apart(const __grid_constant__ BackwardArgs args, int* met) {
  meet<true, true>(args, met);
}

// order[thread block] = {batch, head, first row, steps, blocks of a head}: 1 thread for each.
template <bool kOwnsKeys>
__device__ void tell(const BackwardArgs& args, int* order) {
  using Own = Work<Blocks<kOwnsKeys, false>>;
  const Own work(args, Own::tile(args, blockIdx.x));
  int* const mine = order + int64_t{blockIdx.x} * 5;
  mine[0] = static_cast<int>(work.batch);
  mine[1] = static_cast<int>(work.head);
  mine[2] = work.first_row;
  mine[3] = work.n_steps();
  mine[4] = static_cast<int>(Own::own_blocks(args));
}

extern "C" __global__ void order_of_keys(const __grid_constant__ BackwardArgs args, int* order) {
  tell<true>(args, order);
}
extern "C" __global__ void order_of_queries(const __grid_constant__ BackwardArgs args, int* order) {
  tell<false>(args, order);
}
