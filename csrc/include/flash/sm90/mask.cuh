// Masks of a block of scores: keys behind the end, and keys in the future.
#pragma once

#include "flash/tile/rows.cuh"

namespace flash::sm90 {

// `visible`: for each of the thread's two rows, the number of keys it sees, counted from the
// block's first key. Scores of others become -inf. The thread's columns start at 2 * (lane % 4).
template <int kCount>
FLASH_DEVICE void mask_scores(float (&s)[kCount], const int (&visible)[2], int lane) {
  constexpr int kPart = 32;  // a thread's scores in 64 columns: masks end in one such part
  const int column = 2 * (lane % 4);
  const int end[2] = {visible[0] - column, visible[1] - column};
#pragma unroll
  for (int first = 0; first < kCount; first += kPart) {
    const int behind = (first + kPart) / 4 * 8;
    if (kCount > kPart && __all_sync(0xffffffffu, min(end[0], end[1]) >= behind)) continue;
#pragma unroll
    for (int i = first; i < min(kCount, first + kPart); ++i) {
      if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s[i] = kNegativeInfinity;
    }
  }
}

}  // namespace flash::sm90
