// The order in which thread blocks add their shares of dQ: sm90_bwd_fused/ordered_work.cuh.
#include "flash/sm90_bwd_fused/ordered_work.cuh"

using namespace flash;
using namespace flash::sm90_bwd_fused;

// The members of a Layout that are asked for. Of few steps: as many columns as rows.
template <int kTheColumns, bool kWide>
struct Blocks {
  static constexpr bool kOwnsKeys = true;
  static constexpr bool kStaggers = false;
  static constexpr bool kInOrder = true;
  static constexpr int kRows = 128;
  static constexpr int kColumns = kTheColumns;
  static constexpr bool kWideSections = kWide;
  static constexpr bool kWideForwards = true;
};

// shares[place of the grid][step] = {batch, head, block of keys, query head of the group, block of
// queries, number, whether it is the last, part}; -1 behind the last step. 1 thread for each place.
template <typename L>
__device__ void tell(const BackwardArgs& args, int* shares, int most_steps) {
  const OrderedWork<L> work(args, OrderedWork<L>::grid(args).tile(blockIdx.x));
  Place place{work.first, 0};
  for (int step = 0; step < most_steps; ++step) {
    int* const share = shares + (int64_t{blockIdx.x} * most_steps + step) * 8;
    const bool exists = !place.is_behind(work);
    share[0] = exists ? static_cast<int>(work.batch) : -1;
    share[1] = static_cast<int>(work.head);
    share[2] = static_cast<int>(work.block);
    share[3] = place.head;
    share[4] = place.block;
    share[5] = static_cast<int>(work.number(place.block));
    share[6] = work.is_last(place.block);
    share[7] = static_cast<int>(work.part(args));
    if (exists) place.advance(work);
  }
}

extern "C" __global__ void few_steps(const __grid_constant__ BackwardArgs args, int* shares,
                                     int most_steps) {
  tell<Blocks<128, true>>(args, shares, most_steps);
}
extern "C" __global__ void many_steps(const __grid_constant__ BackwardArgs args, int* shares,
                                      int most_steps) {
  tell<Blocks<64, false>>(args, shares, most_steps);
}
