// What L2 evicts first: the operand of .L2::cache_hint (PTX ISA, createpolicy; sm_80 and later).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// As createpolicy.fractional would return them: evict first, evict last.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;

}  // namespace flash::ptx
