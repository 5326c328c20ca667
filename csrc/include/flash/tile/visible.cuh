// Which keys a query sees.
//
// Query i sees key j if j < seqlen_k and, when causal, j <= i + seqlen_k - seqlen_q: the last query
// sees the last key, whichever sequence is longer. A row that sees no key has output 0 and
// log-sum-exp -inf.
//
// `Problem` is whatever has seqlen_q, seqlen_k and causal: a family's argument record, and, where
// sequences differ in length, what a thread block knows of its own. A key is visible up to an end,
// which is what these functions give; a window would add a beginning.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

// Keys that the causal mask alone lets a row see, counted from key `first`. For rows that see none,
// and for rows behind the end, it is negative, or more than there are.
template <typename Problem>
FLASH_DEVICE int keys_by_mask(const Problem& problem, int row, int first = 0) {
  return problem.seqlen_k - problem.seqlen_q - first + row + 1;
}

// Keys that a row sees, counted from the first.
template <typename Problem>
FLASH_DEVICE int n_visible_keys(const Problem& problem, int row) {
  if (!problem.causal) return problem.seqlen_k;
  return max(0, min(problem.seqlen_k, keys_by_mask(problem, row)));
}

// The keys that a thread's rows see, counted from column `column`, which they see or not: the
// numbers may be negative. Rows are counted from `row`.
struct VisibleKeys {
  int in_sequence;
  int by_first_row;  // when causal; one more in each row below
  bool causal;

  template <typename Problem>
  FLASH_DEVICE VisibleKeys(const Problem& problem, int row, int column)
      : in_sequence(problem.seqlen_k - column),
        by_first_row(keys_by_mask(problem, row, column)),
        causal(problem.causal != 0) {}

  FLASH_DEVICE int of_row(int row) const {
    return causal ? min(in_sequence, by_first_row + row) : in_sequence;
  }
  // Where the sequence does not end: only the causal mask can hide a key.
  FLASH_DEVICE int of_row_when_causal(int row) const { return by_first_row + row; }
};

}  // namespace flash
