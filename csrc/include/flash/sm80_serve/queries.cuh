// The queries of a tile in shared memory.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// A tile's queries on their way to the beginning of shared memory; rows that do not exist become
// zeros. By ordinary loads: waiting for an asynchronous copy would wait for the keys that are on
// their way before it.
template <AmpereServeKernelConfig kConfig>
class QueryRows {
 public:
  FLASH_DEVICE void ask(const ServeArgs& args, const Tile<kConfig>& tile) {
    static_for<0, kSteps>([&](auto step) {
      const int r = first_row() + step * kRows;
      values_[step] = {};
      if (r >= tile.n_rows || chunk() * 8 >= args.d_head) return;
      const int64_t row =
          args.cu_seqlens_q == nullptr ? tile.query(r) : tile.first_query + tile.query(r);
      const int64_t element = tile.batch * args.q_stride_batch + row * args.q_stride_seq +
                              tile.head(r) * args.q_stride_head + chunk() * 8;
      values_[step] =
          ptx::ld_global_16(static_cast<const char*>(args.q) + element * bytes_of(kConfig.dtype));
    });
  }

  FLASH_DEVICE void store(uint32_t smem) const {
    static_for<0, kSteps>([&](auto step) {
      const int r = first_row() + step * kRows;
      if (r < kConfig.B_r) ptx::st_shared_16<0>(smem + Shared::offset(r, chunk()), values_[step]);
    });
  }

 private:
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kRows = kConfig.n_threads() / Shared::kChunksPerRow;  // at a time
  static constexpr int kSteps = (kConfig.B_r + kRows - 1) / kRows;

  FLASH_DEVICE static int chunk() { return static_cast<int>(threadIdx.x) % Shared::kChunksPerRow; }
  FLASH_DEVICE static int first_row() {
    return static_cast<int>(threadIdx.x) / Shared::kChunksPerRow;
  }

  ptx::Vector16 values_[kSteps];
};

}  // namespace flash::sm80_serve
