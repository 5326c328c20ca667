// The addresses of tile/shared_tile.h, as numbers.
#include "flash/tile/shared_tile.h"

using namespace flash;

constexpr int kRows = 32;

// offsets[row][chunk]: bytes. steps[delta / 2][2]: what is XORed, and what is added.
template <int kDHead, bool kSwizzled>
__device__ void describe(int* offsets, int* steps) {
  using Tile = SharedTile<kDHead, kSwizzled>;
  for (int row = 0; row < kRows; ++row) {
    for (int chunk = 0; chunk < Tile::kChunksPerRow; ++chunk) {
      offsets[row * Tile::kChunksPerRow + chunk] = Tile::offset(row, chunk);
    }
  }
  for (int delta = 0; delta < Tile::kChunksPerRow; delta += 2) {
    steps[delta] = Tile::xor_bytes(delta);
    steps[delta + 1] = Tile::add_bytes(delta);
  }
}

extern "C" __global__ void kernel(int* offsets, int* steps, int d_head, int swizzled) {
  if (d_head == 64)
    swizzled ? describe<64, true>(offsets, steps) : describe<64, false>(offsets, steps);
  if (d_head == 32)
    swizzled ? describe<32, true>(offsets, steps) : describe<32, false>(offsets, steps);
  if (d_head == 96)
    swizzled ? describe<96, true>(offsets, steps) : describe<96, false>(offsets, steps);
  if (d_head == 128)
    swizzled ? describe<128, true>(offsets, steps) : describe<128, false>(offsets, steps);
  if (d_head == 256)
    swizzled ? describe<256, true>(offsets, steps) : describe<256, false>(offsets, steps);
}
