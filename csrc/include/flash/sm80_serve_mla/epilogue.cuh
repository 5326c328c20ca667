// The end of a tile: its rows, normalised, as the call's result or as a part of it.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/sm80_serve/merge.cuh"
#include "flash/sm80_serve/parts.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/sm80_serve_mla/place.cuh"
#include "flash/sm80_serve_mla/softmax.cuh"
#include "flash/sm80_serve_mla/split.cuh"

namespace flash::sm80_serve_mla {

// Where four columns of a row go, and those 8, 16 and so on behind them.
template <AmpereMlaKernelConfig kConfig>
class RowOfPiece {
 public:
  using Parts = sm80_serve::Parts<kConfig.serving()>;
  using Piece = sm80_serve::Piece<kConfig.serving()>;

  FLASH_DEVICE RowOfPiece(const ServeArgs& args, const Piece& piece, const Parts& parts, int r,
                          int column)
      : is_whole_(piece.is_whole) {
    if (is_whole_) {
      // Without cu_seqlens_q a sequence has a stride of its own.
      const auto& tile = piece.tile;
      const int64_t query = tile.query(r) + (args.cu_seqlens_q == nullptr ? 0 : tile.first_query);
      const int head = tile.head(r);
      first_ = reinterpret_cast<uint2*>(args.o) +
               (tile.batch * args.o_stride_batch + query * args.o_stride_seq +
                head * args.o_stride_head + column) /
                   4;
      lse_ = args.lse == nullptr ? nullptr
                                 : args.lse + tile.batch * args.lse_stride_batch +
                                       head * args.lse_stride_head + query;
    } else if (is_split(args)) {
      const int64_t row =
          sm80_serve::partial_row(args, piece.tile, Split<kConfig>::number(args), r);
      first_ = reinterpret_cast<float4*>(args.o_partial) + (row * kConfig.d_v() + column) / 4;
      lse_ = args.lse_partial + row;
    } else {
      first_ = &parts.sum(parts.own(), r, column);
      lse_ = &parts.lse(parts.own(), r, false);
    }
  }

  FLASH_DEVICE void store(int n, const float4& o) const {
    if (is_whole_) {
      static_cast<uint2*>(first_)[2 * n] = {ptx::pack<kConfig.dtype>(o.x, o.y),
                                            ptx::pack<kConfig.dtype>(o.z, o.w)};
    } else {
      static_cast<float4*>(first_)[2 * n] = o;
    }
  }
  FLASH_DEVICE void store_lse(float lse) const {
    if (lse_ != nullptr) *lse_ = lse;
  }

 private:
  bool is_whole_;
  void* first_;
  float* lse_;
};

// Writes the rows of a piece, all of which have told their sums. A thread takes four columns of one
// row where it has two of this one and of the row 8 below.
template <AmpereMlaKernelConfig kConfig, int kMTiles, int kOTiles>
FLASH_DEVICE void store_rows(const ServeArgs& args,
                             const sm80_serve::Piece<kConfig.serving()>& piece,
                             const sm80_serve::Parts<kConfig.serving()>& parts,
                             const float (&o)[kMTiles][kOTiles][4],
                             const LatentSoftmax<kConfig>& softmax, const Place<kConfig>& at) {
  const bool is_lower = at.lane % 2 == 1;
  const int column = at.warp * kConfig.warp_columns() + at.lane % 4 / 2 * 4;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    const int r = m * 16 + softmax.first_row() + (is_lower ? 8 : 0);
    const bool exists = r < piece.tile.n_rows;
    const auto ends = softmax.ends(m);
    const auto end = is_lower ? ends.lower : ends.upper;
    const bool has_sink = exists && piece.is_whole && args.sinks != nullptr;
    const sm80_serve::MergedColumns factor = sm80_serve::merged<1>(
        1, has_sink ? args.sinks[piece.tile.head(r)] : kNegativeInfinity,
        [&](int) { return end.lse; }, [&](int) { return float4{end.inverse, 0.0f, 0.0f, 0.0f}; });
    const float scale = factor.o.x;  // 0: nothing was seen, and the sums may be anything
    const RowOfPiece<kConfig> row(args, piece, parts, exists ? r : 0, column);
#pragma unroll
    for (int n = 0; n < kOTiles; ++n) {
      const float (&c)[4] = o[m][n];
      const float left = __shfl_xor_sync(0xffffffffu, is_lower ? c[0] : c[2], 1);
      const float right = __shfl_xor_sync(0xffffffffu, is_lower ? c[1] : c[3], 1);
      const float4 sum =
          is_lower ? float4{left, right, c[2], c[3]} : float4{c[0], c[1], left, right};
      const float4 scaled = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
      if (exists) row.store(n, scale == 0.0f ? float4{} : scaled);
    }
    if (exists && column == 0) row.store_lse(factor.lse);
  }
}

}  // namespace flash::sm80_serve_mla
