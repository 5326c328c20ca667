// A wgmma operand in shared memory: its descriptor, and where the elements lie (PTX ISA, "Shared
// memory matrix layout" and "Matrix descriptor").
#pragma once

#include "memory.h"
#include "tensor_map.h"
#include "types.h"

namespace emulator {

struct MatrixDescriptor {
  u32 address;  // as of PTX
  u32 leading, stride;
  u32 base_offset;
  u32 span;  // bytes of a swizzled row, 16 without swizzle

  explicit MatrixDescriptor(u64 bits)
      : address(u32(bits & 0x3FFF) << 4),
        leading(u32(bits >> 16 & 0x3FFF) << 4),
        stride(u32(bits >> 32 & 0x3FFF) << 4),
        base_offset(u32(bits >> 49 & 7)),
        span(16u << ((4 - u32(bits >> 62)) & 3)) {}

  // Address of 8 elements of 16 bits that are neighbours in memory. K-major: row `major` of M or N,
  // elements 8 `minor` and up of K. MN-major: row `major` of K, elements 8 `minor` and up of M or
  // N.
  u32 piece(bool transposed, u32 major, u32 minor) const {
    u32 offset = (major % 8) * span;
    if (!transposed) {
      offset += (major / 8) * stride + minor * (span == 16 ? leading : 16);
    } else if (span == 16) {
      offset += (major / 8) * leading + minor * stride;
    } else {
      const u32 pieces = span / 16;
      offset += (major / 8) * stride + (minor / pieces) * leading + (minor % pieces) * 16;
    }
    return swizzled(address + offset, span);
  }
};

}  // namespace emulator
