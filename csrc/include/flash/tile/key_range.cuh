// Which keys a query sees: one rule for causal masks, windows, lengths, padding and chunks.
//
// Of a sequence of seqlen_q queries and keys [leftpad, seqlen_k), query i stands at key
// a = i + seqlen_k - seqlen_q, and sees keys max(leftpad, a - left) <= j < min(seqlen_k, a + right
// + 1). Neither end falls when i grows. A query that sees no key has output 0 and log-sum-exp -inf.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

struct KeyRange {
  int begin;
  int end;  // nothing is seen where it is not behind begin

  FLASH_DEVICE bool has(int key) const { return begin <= key && key < end; }
  FLASH_DEVICE KeyRange within(const KeyRange& other) const {
    return {max(begin, other.begin), min(end, other.end)};
  }
};

struct KeyRule {
  int seqlen_q;
  int seqlen_k;
  int leftpad;
  int left;   // kNoWindow, the largest int: no limit
  int right;  // 0 when causal

  // No sum here overflows, whatever the window is. (nvcc 13.0 turns `place > left ? place - left :
  // 0` into max(place - left, 0), which does.)
  FLASH_DEVICE KeyRange of(int query) const {
    const int place = query + (seqlen_k - seqlen_q);
    const int behind = seqlen_q - 1 - query;  // keys behind `place`
    return {max(leftpad, place - min(left, max(place, 0))),
            right < behind ? place + right + 1 : seqlen_k};
  }
};

// Blocks of kKeys keys of which queries [first, last] see something, and which of them all of these
// queries see whole.
template <int kKeys>
struct KeyBlocks {
  KeyRange keys;  // that some query sees
  int begin, end;
  int whole_begin, whole_end;

  FLASH_DEVICE KeyBlocks(const KeyRule& rule, int first, int last) {
    const KeyRange of_first = rule.of(first);
    const KeyRange of_last = rule.of(last);
    keys = {of_first.begin, of_last.end};
    begin = keys.begin / kKeys;
    end = keys.end > keys.begin ? (keys.end + kKeys - 1) / kKeys : begin;
    whole_begin = (of_last.begin + kKeys - 1) / kKeys;
    whole_end = max(of_first.end, 0) / kKeys;
  }

  FLASH_DEVICE bool is_whole(int block) const { return whole_begin <= block && block < whole_end; }
};

}  // namespace flash
