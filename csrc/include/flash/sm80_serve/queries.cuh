// The queries of a tile in shared memory.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// Writes the tile's queries to the beginning of shared memory; rows that do not exist become zeros.
// By ordinary loads: waiting for an asynchronous copy would wait for the keys that are on their way
// before it.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void load_queries(const ServeArgs& args, const Tile<kConfig>& tile, uint32_t smem) {
  using Shared = SharedTile<kConfig.d_head, true>;
  constexpr int kRows = kConfig.n_threads() / Shared::kChunksPerRow;  // at a time
  constexpr int kSteps = (kConfig.B_r + kRows - 1) / kRows;
  const int chunk = static_cast<int>(threadIdx.x) % Shared::kChunksPerRow;
  const int first = static_cast<int>(threadIdx.x) / Shared::kChunksPerRow;
  ptx::Vector16 values[kSteps];
  static_for<0, kSteps>([&](auto step) {
    const int r = first + step * kRows;
    values[step] = {};
    if (r >= tile.n_rows || chunk * 8 >= args.d_head) return;
    const int64_t row =
        args.cu_seqlens_q == nullptr ? tile.query(r) : tile.first_query + tile.query(r);
    const int64_t element = tile.batch * args.q_stride_batch + row * args.q_stride_seq +
                            tile.head(r) * args.q_stride_head + chunk * 8;
    values[step] =
        ptx::ld_global_16(static_cast<const char*>(args.q) + element * bytes_of(kConfig.dtype));
  });
  static_for<0, kSteps>([&](auto step) {
    const int r = first + step * kRows;
    if (r < kConfig.B_r) ptx::st_shared_16<0>(smem + Shared::offset(r, chunk), values[step]);
  });
}

}  // namespace flash::sm80_serve
