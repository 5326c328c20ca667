// Division by a number that only the launch knows, without a division.
#pragma once

#include <cstdint>

#include "flash/ptx/device.cuh"

namespace flash {

// Divides numbers below 2^31. The inverse is less than 2^32 / divisor, by 1 at most, so a quotient
// by it is too small by n / 2^32 < 1 before it is rounded down: it is right, or one too small.
struct Divisor {
  struct Result {
    uint32_t quotient;
    uint32_t remainder;
  };

  static constexpr uint32_t kLargest = 0xffffffffu;

  uint32_t divisor;  // at least 1
  uint32_t inverse;

  FLASH_DEVICE explicit Divisor(uint32_t number) : Divisor(number, kLargest / number) {}
  // Where the host has divided kLargest.
  FLASH_DEVICE Divisor(uint32_t number, uint32_t inverse_of_number)
      : divisor(number), inverse(inverse_of_number) {}

  FLASH_DEVICE Result divide(uint32_t n) const {
    const uint32_t quotient = __umulhi(n, inverse);
    const uint32_t remainder = n - quotient * divisor;
    if (remainder < divisor) return {quotient, remainder};
    return {quotient + 1, remainder - divisor};
  }
};

}  // namespace flash
