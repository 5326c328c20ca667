// The queries of a tile in shared memory.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// A tile's queries on their way to the beginning of shared memory; rows that do not exist become
// zeros.
template <AmpereServeKernelConfig kConfig>
class QueryRows {
 public:
  // By asynchronous copies.
  FLASH_DEVICE static void copy(const ServeArgs& args, const Tile<kConfig>& tile, uint32_t smem) {
    for_own([&](auto, int r) {
      const bool exists = has(args, tile, r);
      ptx::cp_async_16_zero_fill<0>(smem + Shared::offset(r, chunk()),
                                    exists ? source(args, tile, r) : args.q,
                                    exists ? Shared::kChunkBytes : 0);
    });
  }

  // By ordinary loads, in registers until they are stored.
  FLASH_DEVICE void ask(const ServeArgs& args, const Tile<kConfig>& tile) {
    for_own([&](auto step, int r) {
      values_[step] = {};
      if (has(args, tile, r)) values_[step] = ptx::ld_global_16(source(args, tile, r));
    });
  }

  FLASH_DEVICE void store(uint32_t smem) const {
    for_own([&](auto step, int r) {
      ptx::st_shared_16<0>(smem + Shared::offset(r, chunk()), values_[step]);
    });
  }

 private:
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kRows = kConfig.n_threads() / Shared::kChunksPerRow;  // at a time
  static constexpr int kSteps = (kConfig.B_r + kRows - 1) / kRows;

  FLASH_DEVICE static int chunk() { return static_cast<int>(threadIdx.x) % Shared::kChunksPerRow; }

  // Calls body(step, row) for this thread's rows of the tile.
  template <typename Body>
  FLASH_DEVICE static void for_own(const Body& body) {
    static_for<0, kSteps>([&](auto step) {
      const int r = static_cast<int>(threadIdx.x) / Shared::kChunksPerRow + step * kRows;
      if (r < kConfig.B_r) body(step, r);
    });
  }

  FLASH_DEVICE static bool has(const ServeArgs& args, const Tile<kConfig>& tile, int r) {
    return r < tile.n_rows && chunk() * 8 < args.d_head;
  }
  FLASH_DEVICE static const char* source(const ServeArgs& args, const Tile<kConfig>& tile, int r) {
    const int64_t row =
        args.cu_seqlens_q == nullptr ? tile.query(r) : tile.first_query + tile.query(r);
    const int64_t element = tile.batch * args.q_stride_batch + row * args.q_stride_seq +
                            tile.head(r) * args.q_stride_head + chunk() * 8;
    return static_cast<const char*>(args.q) + element * bytes_of(kConfig.dtype);
  }

  ptx::Vector16 values_[kSteps];
};

}  // namespace flash::sm80_serve
