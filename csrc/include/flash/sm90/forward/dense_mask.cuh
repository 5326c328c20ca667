// Which keys the rows of a consumer see where all sequences of a call have the same length.
#pragma once

#include "flash/sm90/args.h"
#include "flash/sm90/config.h"
#include "flash/sm90/forward/work.cuh"
#include "flash/sm90/mask.cuh"
#include "flash/tile/visible.cuh"

namespace flash::sm90 {

template <HopperForwardKernelConfig kConfig>
struct DenseMask {
  using Work = sm90::Work;
  static constexpr int kBlockN = kConfig.block_n;

  const ForwardKernelArgs& args;

  // Scores of keys that a row does not see become -inf. `warp`: of the group.
  template <int kCount>
  FLASH_DEVICE void apply(float (&s)[kCount], const Work& work, int block, const int& warp,
                          const int& lane) const {
    if (block >= work.n_whole) {
      int visible[2];
      visible_keys(work, block, warp, lane, visible);
      mask_scores(s, visible, lane);
    }
  }

  // Keys from the first of `block` on that the group's middle row sees.
  FLASH_DEVICE int n_keys_from(const Work& work, int block) const {
    constexpr int kMiddle = HopperForwardKernelConfig::kGroupRows / 2;
    return n_visible_keys(args, work.row + kMiddle) - block * kBlockN;
  }

 private:
  // Keys that the thread's two rows see, counted from the first of `block`.
  FLASH_DEVICE void visible_keys(const Work& work, int block, const int& warp, const int& lane,
                                 int (&visible)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = work.row + warp * 16 + lane / 4 + 8 * half;
      visible[half] = n_visible_keys(args, row) - block * kBlockN;
    }
  }
};

}  // namespace flash::sm90
