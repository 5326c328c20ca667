// Masks of a block of scores: keys behind the end, and keys in the future.
#pragma once

#include "flash/tile/rows.cuh"

namespace flash::sm90 {

// `visible`: for each of the thread's two rows, the number of keys it sees, counted from the
// block's first key. Scores of others become -inf. The thread's columns start at 2 * (lane % 4).
template <int kCount>
FLASH_DEVICE void mask_scores(float (&s)[kCount], const int (&visible)[2], int lane) {
  const int column = 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (column + i / 4 * 8 + i % 2 >= visible[i / 2 % 2]) s[i] = kNegativeInfinity;
  }
}

}  // namespace flash::sm90
