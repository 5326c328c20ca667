// The queries of a tile in shared memory: rows of `qv`, and behind each one of `q`.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/tile.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve_mla {

// The first of the tile's queries on their way to shared memory, the others when these are stored;
// rows that do not exist become zeros. A warp takes row after row. By ordinary loads: waiting for
// an asynchronous copy would wait for the keys that are on their way before it.
template <AmpereMlaKernelConfig kConfig>
class LatentQueries {
 public:
  using Tile = sm80_serve::Tile<kConfig.serving()>;

  FLASH_DEVICE LatentQueries(const ServeArgs& args, const Tile& tile, int warp, int lane)
      : args_(args), tile_(tile), warp_(warp), lane_(lane) {
    load(0);
  }

  FLASH_DEVICE void store(uint32_t smem) {
#pragma unroll 1
    for (int first = 0;;) {
      static_for<0, kAtOnce>([&](auto i) {
        static_for<0, kPieces>([&](auto piece) {
          if (piece == kPieces - 1 && lane_ >= kRotatedChunks) return;
          ptx::st_shared_16<0>(smem + Shared::offset(row(first + i), piece * kLanes + lane_),
                               values_[i][piece]);
        });
      });
      first += kAtOnce;
      if (first >= kRows) return;
      load(first);
    }
  }

 private:
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kLanes = 32;
  static constexpr int kRotatedChunks = AmpereMlaKernelConfig::kRotated / 8;
  static constexpr int kPieces = kConfig.d_v() / 8 / kLanes + 1;  // of a row, the last what rotates
  static constexpr int kRows = kConfig.B_r / kConfig.n_warps;     // of a warp
  static constexpr int kAtOnce = 2;
  static_assert(kConfig.d_v() / 8 % kLanes == 0 && kRows % kAtOnce == 0);

  FLASH_DEVICE int row(int i) const { return i * kConfig.n_warps + warp_; }

  FLASH_DEVICE void load(int first) {
    static_for<0, kAtOnce>([&](auto i) {
      const int r = row(first + i);
      static_for<0, kPieces>([&](auto piece) { values_[i][piece] = {}; });
      if (r >= tile_.n_rows) return;
      const int64_t query =
          args_.cu_seqlens_q == nullptr ? tile_.query(r) : tile_.first_query + tile_.query(r);
      const int head = tile_.head(r);
      const char* const qv =
          of_row(args_.qv, tile_.batch * args_.qv_stride_batch + query * args_.qv_stride_seq +
                               head * args_.qv_stride_head);
      const char* const q =
          of_row(args_.q, tile_.batch * args_.q_stride_batch + query * args_.q_stride_seq +
                              head * args_.q_stride_head);
      static_for<0, kPieces - 1>([&](auto piece) {
        values_[i][piece] = ptx::ld_global_16(qv + (piece * kLanes + lane_) * 16);
      });
      if (lane_ < kRotatedChunks) values_[i][kPieces - 1] = ptx::ld_global_16(q + lane_ * 16);
    });
  }
  FLASH_DEVICE static const char* of_row(const void* tensor, int64_t element) {
    return static_cast<const char*>(tensor) + element * bytes_of(kConfig.dtype);
  }

  const ServeArgs& args_;
  const Tile& tile_;
  int warp_;
  int lane_;
  ptx::Vector16 values_[kAtOnce][kPieces];
};

}  // namespace flash::sm80_serve_mla
