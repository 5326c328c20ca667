// What no step of the road changes in how a warp handles its 16-row tiles: constants, reductions
// over the four threads of a row, accumulators as operands, and the last copy to global memory.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/config.h"
#include "flash/tile/rows.cuh"
#include "flash/tile/shared_tile.h"

namespace flash::previous::common {

constexpr int kWarp = sm80::FlashForwardKernelConfig::kWarpSize;
using flash::kLn2;
using flash::kLog2e;
using flash::kNegativeInfinity;
using flash::quad_max;
using flash::quad_sum;

using Fragment = uint32_t[4];

template <int kTiles>
FLASH_DEVICE void clear(float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0.0f;
  }
}

// Two neighbouring 16x8 accumulators are, rounded, exactly one 16x16 A operand.
template <DType kDType>
FLASH_DEVICE void pack_operand(Fragment& a, const float (&left)[4], const float (&right)[4]) {
  a[0] = ptx::pack<kDType>(left[0], left[1]);
  a[1] = ptx::pack<kDType>(left[2], left[3]);
  a[2] = ptx::pack<kDType>(right[0], right[1]);
  a[3] = ptx::pack<kDType>(right[2], right[3]);
}

// The output rows of one warp, staged at shared address `staged`, to global memory: 16 bytes a
// lane, whole rows.
template <typename Tile, int kRows>
FLASH_DEVICE void store_rows(uint32_t staged, char* rows, int64_t row_bytes, int lane) {
  constexpr int kRowsPerStep = kWarp / Tile::kChunksPerRow;
  const int chunk = lane % Tile::kChunksPerRow;
#pragma unroll
  for (int first = 0; first < kRows; first += kRowsPerStep) {
    const int row = first + lane / Tile::kChunksPerRow;
    ptx::st_global_16(rows + row * row_bytes + chunk * Tile::kChunkBytes,
                      ptx::ld_shared_16<0>(staged + Tile::offset(row, chunk)));
  }
}

// One lane of the four that share a row writes the log-sum-exp of rows lane / 4 and + 8.
FLASH_DEVICE void store_lse(const float (&log_sum_exp)[2], float* rows, int lane) {
  if (lane % 4 != 0) return;
  rows[lane / 4] = log_sum_exp[0];
  rows[lane / 4 + 8] = log_sum_exp[1];
}

}  // namespace flash::previous::common
