// The end of a tile: its rows, normalised, as the call's result or as a part of it.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm80_serve/merge.cuh"
#include "flash/sm80_serve_mla/epilogue.cuh"
#include "flash/sm90_serve_mla/matmuls.cuh"
#include "flash/sm90_serve_mla/place.cuh"

namespace flash::sm90_serve_mla {

// Writes this group's columns of the rows of a piece, whose ends are told. A thread takes four
// columns of one row where it has two of this one and of the row 8 below.
template <HopperMlaKernelConfig kConfig>
FLASH_DEVICE void store_rows(const ServeArgs& args,
                             const sm80_serve::Piece<kConfig.ampere().serving()>& piece,
                             const sm80_serve::Parts<kConfig.ampere().serving()>& parts,
                             const typename Matmuls<kConfig>::Output& o, const Place<kConfig>& at) {
  const bool is_lower = at.lane % 2 == 1;
  const int column = at.group() * kConfig.group_columns() + at.lane % 4 / 2 * 4;
  const int r = at.row() + (is_lower ? 8 : 0);
  const bool exists = r < piece.tile.n_rows;
  const float2 end = at.ends()[r];
  const bool has_sink = exists && piece.is_whole && args.sinks != nullptr;
  const sm80_serve::MergedColumns factor = sm80_serve::merged<1>(
      1, has_sink ? args.sinks[piece.tile.head(r)] : kNegativeInfinity, [&](int) { return end.y; },
      [&](int) { return float4{end.x, 0.0f, 0.0f, 0.0f}; });
  const float scale = factor.o.x;  // 0: nothing was seen, and the sums may be anything
  const sm80_serve_mla::RowOfPiece<kConfig.ampere()> row(args, piece, parts, exists ? r : 0,
                                                         column);
#pragma unroll
  for (int n = 0; n < kConfig.group_columns() / 8; ++n) {
    const float* const c = &o[4 * n];
    const float left = __shfl_xor_sync(0xffffffffu, is_lower ? c[0] : c[2], 1);
    const float right = __shfl_xor_sync(0xffffffffu, is_lower ? c[1] : c[3], 1);
    const float4 sum = is_lower ? float4{left, right, c[2], c[3]} : float4{c[0], c[1], left, right};
    const float4 scaled = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
    if (exists) row.store(n, scale == 0.0f ? float4{} : scaled);
  }
  if (exists && column == 0) row.store_lse(factor.lse);
}

}  // namespace flash::sm90_serve_mla
