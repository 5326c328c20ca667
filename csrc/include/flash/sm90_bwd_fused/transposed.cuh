// Accumulators of a warpgroup, rounded, into shared memory with rows and columns exchanged.
#pragma once

#include "flash/ptx/stmatrix.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_fused {

constexpr int kChunkRowBytes = 128;  // of 64 elements, one swizzle atom

// Where a lane of warp `warp` begins to write its 16 columns of a chunk of [rows][64 elements]: the
// 16-byte pieces of a row are permuted by the row's number modulo 8 (PTX ISA 5.5.7), which is that
// of the lane.
FLASH_DEVICE uint32_t transposed_address(uint32_t chunk, int warp, int lane) {
  const int row = lane / 16 * 8 + lane % 8;
  const int piece = (warp * 2 + lane / 8 % 2) ^ (lane % 8);
  return chunk + row * kChunkRowBytes + piece * 16;
}

// `values`: the A operands (ptx/wgmma.cuh) of kSteps k-steps; each k-step becomes 16 rows.
template <int kSteps>
FLASH_DEVICE void store_transposed(const uint32_t (&values)[kSteps][4], uint32_t address) {
  static_for<0, kSteps>([&](auto step) {
    ptx::stmatrix_x4_trans<step * 16 * kChunkRowBytes>(address, values[step]);
  });
}

}  // namespace flash::sm90_bwd_fused
