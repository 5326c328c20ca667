// A loop over blocks as two: over those that hide keys from queries, and over those that hide none.
//
// Few blocks of an attention matrix hide something. With the mask in the loop, its instructions are
// jumped over in nearly every step, and still fetched around; in a loop of its own they are not
// there, and neither is what a step does because something might be hidden.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

// What is known of a block where its step is compiled.
enum class Hides { kMaybe, kNothing, kSome };

template <Hides kValue>
struct KnownHides {
  static constexpr Hides value = kValue;
};

// Takes step(KnownHides) for each i from `first` to `end`; hides_something(): of the next block.
template <typename HidesSomething, typename Step>
FLASH_DEVICE void step_by_mask(int first, int end, HidesSomething&& hides_something, Step&& step) {
  for (int i = first; i < end;) {
    for (; i < end && !hides_something(); ++i) step(KnownHides<Hides::kNothing>{});
    for (; i < end && hides_something(); ++i) step(KnownHides<Hides::kSome>{});
  }
}

// The mask, with what is known of it.
template <Hides kHides, typename Mask>
FLASH_DEVICE Mask known_mask(Mask mask) {
  if constexpr (kHides != Hides::kMaybe) mask.hides_something = kHides == Hides::kSome;
  return mask;
}

}  // namespace flash
