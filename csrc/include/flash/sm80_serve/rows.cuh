// The end of a tile: its rows, of which parts were computed, put together and written.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/merge.cuh"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

// Calls store(row, column, merged) for four columns of each of the tile's rows, which `n_blocks`
// thread blocks share: this is the one of number `block`. lse_of(part, row),
// sum_of(part, row, column); `sinks`: of all heads, or null.
template <AmpereServeKernelConfig kConfig, int kAtOnce, typename LseOf, typename SumOf,
          typename Store>
FLASH_DEVICE void merge_rows(const Tile<kConfig>& tile, int n_parts, const float* sinks,
                             const LseOf& lse_of, const SumOf& sum_of, const Store& store,
                             int block = 0, int n_blocks = 1) {
  constexpr int kLanes = kConfig.d_head / 4;  // of a row
  constexpr int kStep = kConfig.n_threads() / kLanes;
  const int column = static_cast<int>(threadIdx.x) % kLanes * 4;
  for (int r = block * kStep + static_cast<int>(threadIdx.x) / kLanes; r < tile.n_rows;
       r += n_blocks * kStep) {
    const float sink = sinks == nullptr ? kNegativeInfinity : sinks[tile.head(r)];
    store(r, column,
          merged<kAtOnce>(
              n_parts, sink, [&](int part) { return lse_of(part, r); },
              [&](int part) { return sum_of(part, r, column); }));
  }
}

// Four columns of a row, as the call's result.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void store_result(const ServeArgs& args, const Tile<kConfig>& tile, int r, int column,
                               const MergedColumns& merged) {
  // Without cu_seqlens_q a sequence has a stride of its own.
  const int64_t row =
      args.cu_seqlens_q == nullptr ? tile.query(r) : tile.first_query + tile.query(r);
  const int head = tile.head(r);
  if (column < args.d_v) {
    const int64_t to = tile.batch * args.o_stride_batch + row * args.o_stride_seq +
                       head * args.o_stride_head + column;
    reinterpret_cast<uint2*>(args.o)[to / 4] = {ptx::pack<kConfig.dtype>(merged.o.x, merged.o.y),
                                                ptx::pack<kConfig.dtype>(merged.o.z, merged.o.w)};
  }
  if (column == 0 && args.lse != nullptr) {
    args.lse[tile.batch * args.lse_stride_batch + head * args.lse_stride_head + row] = merged.lse;
  }
}

// Where a split's result of one of the tile's rows lies.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE int64_t partial_row(const ServeArgs& args, const Tile<kConfig>& tile, int split,
                                 int r) {
  const int64_t row = tile.first_query + tile.query(r);
  return (split * int64_t{args.n_rows} + row) * args.n_heads_q + tile.head(r);
}

// Merges the splits of a tile: the second kernel. Several thread blocks share a tile's rows.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void combine(const ServeArgs& args) {
  const Tile<kConfig> tile =
      tile_of<kConfig>(args, blockIdx.x, threadIdx.x % AmpereServeKernelConfig::kWarpSize);
  if (tile.n_rows == 0) return;
  merge_rows<kConfig, 16>(
      tile, args.n_splits, args.sinks,
      [&](int split, int r) { return args.lse_partial[partial_row(args, tile, split, r)]; },
      [&](int split, int r, int column) {
        return reinterpret_cast<const float4*>(
            args.o_partial)[(partial_row(args, tile, split, r) * kConfig.d_head + column) / 4];
      },
      [&](int r, int column, const MergedColumns& merged) {
        store_result(args, tile, r, column, merged);
      },
      split_of<kConfig>(args, blockIdx.x), kConfig.combining_blocks());
}

}  // namespace flash::sm80_serve
