// The end of a tile: its rows, of which parts were computed, put together and written.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/merge.cuh"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

// Where the partial result of a row lies: row `row` of q, of a query head and a split.
FLASH_DEVICE int64_t partial_row(const ServeArgs& args, int split, int64_t row, int head) {
  return (split * int64_t{args.n_rows} + row) * args.n_heads_q + head;
}

// Writes the rows of a tile: as its result, or (kPartial) for the kernel that merges the splits.
// lse_of(part, row), sum_of(part, row, column): of the tile's rows, four columns.
template <AmpereServeKernelConfig kConfig, bool kPartial, typename LseOf, typename SumOf>
FLASH_DEVICE void write_rows(const ServeArgs& args, const Tile<kConfig>& tile, int n_parts,
                             const LseOf& lse_of, const SumOf& sum_of) {
  constexpr int kLanes = kConfig.d_head / 4;  // of a row
  const int column = static_cast<int>(threadIdx.x) % kLanes * 4;
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < tile.n_rows;
       r += kConfig.n_threads() / kLanes) {
    const int head = tile.head(r);
    const int query = tile.query(r);
    const float sink = kPartial || args.sinks == nullptr ? kNegativeInfinity : args.sinks[head];
    const auto lse_of_part = [&](int part) { return lse_of(part, r); };
    const float lse = merged_lse(n_parts, sink, lse_of_part);
    const float4 o = merged_columns(n_parts, lse, lse_of_part,
                                    [&](int part) { return sum_of(part, r, column); });
    if constexpr (kPartial) {
      const int64_t to = partial_row(args, tile.split, tile.first_query + query, head);
      reinterpret_cast<float4*>(args.o_partial)[to * kLanes + column / 4] = o;
      if (column == 0) args.lse_partial[to] = lse;
    } else {
      // Without cu_seqlens_q a sequence has a stride of its own.
      const int64_t row = args.cu_seqlens_q == nullptr ? query : tile.first_query + query;
      if (column < args.d_v) {
        const int64_t to = tile.batch * args.o_stride_batch + row * args.o_stride_seq +
                           head * args.o_stride_head + column;
        reinterpret_cast<uint2*>(args.o)[to / 4] = {ptx::pack<kConfig.dtype>(o.x, o.y),
                                                    ptx::pack<kConfig.dtype>(o.z, o.w)};
      }
      if (column == 0 && args.lse != nullptr) {
        args.lse[tile.batch * args.lse_stride_batch + head * args.lse_stride_head + row] = lse;
      }
    }
  }
}

// Merges the splits of a tile: the second kernel.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void combine(const ServeArgs& args) {
  const Tile<kConfig> tile(args, blockIdx.x, threadIdx.x % AmpereServeKernelConfig::kWarpSize);
  if (tile.n_rows == 0) return;
  const auto partial = [&](int split, int r) {
    return partial_row(args, split, tile.first_query + tile.query(r), tile.head(r));
  };
  write_rows<kConfig, /*kPartial=*/false>(
      args, tile, args.n_splits,
      [&](int split, int r) { return args.lse_partial[partial(split, r)]; },
      [&](int split, int r, int column) {
        return reinterpret_cast<const float4*>(
            args.o_partial)[(partial(split, r) * kConfig.d_head + column) / 4];
      });
}

}  // namespace flash::sm80_serve
