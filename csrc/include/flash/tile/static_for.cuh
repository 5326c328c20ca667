// Loops whose index is a compile-time constant, for instruction immediates and register arrays.
//
// A lambda inside the body cannot use the body's parameter as a constant: NVRTC takes C++ by its
// word there, nvcc does not. The body gives it a name first (constexpr int kTile = t).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash {

template <int kValue>
struct Int {
  static constexpr int value = kValue;
  constexpr operator int() const { return kValue; }
};

template <int kBegin, int kEnd, int kStep = 1, typename Body>
FLASH_DEVICE void static_for(Body&& body) {
  if constexpr (kBegin < kEnd) {
    body(Int<kBegin>{});
    static_for<kBegin + kStep, kEnd, kStep>(body);
  }
}

}  // namespace flash
