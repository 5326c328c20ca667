// The queries of a tile in shared memory: rows of `qv`, and behind each one of `q`, in swizzled
// chunks as the copy engine would write them. Rows of a tile are heads of one query or of several,
// as many as there are.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/cp_async.cuh"
#include "flash/sm80_serve/tile.cuh"
#include "flash/sm90_serve_mla/place.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_serve_mla {

// By all computing warps, each of which takes some rows; those that do not exist become zeros.
template <HopperMlaKernelConfig kConfig>
struct Queries {
  using Tile = sm80_serve::Tile<kConfig.ampere().serving()>;
  static constexpr int kLanes = 32;
  static constexpr int kVectors = kConfig.d_head / 8;  // of 16 bytes, of a row
  static constexpr int kValueVectors = kConfig.d_v() / 8;
  static constexpr int kPieces = (kVectors + kLanes - 1) / kLanes;  // of a row, for each lane

  const ServeArgs& args;
  const Tile& tile;
  const Place<kConfig>& at;

  // All rows are on their way at once, and there when this returns.
  FLASH_DEVICE void copy() const {
#pragma unroll 1
    for (int row = at.warp; row < kConfig.B_r; row += kConfig.n_warps) copy(row);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
  }

 private:
  FLASH_DEVICE uint32_t address(int row, int vector) const {
    return at.queries() + kConfig.chunk_bytes(vector / 8 * kConfig.B_r + row) +
           (vector % 8 ^ row % 8) * 16;
  }

  FLASH_DEVICE void copy(int row) const {
    // Without cu_seqlens_q a sequence has a stride of its own.
    const int64_t query = tile.query(row) + (args.cu_seqlens_q == nullptr ? 0 : tile.first_query);
    const int head = tile.head(row);
    const char* const qv =
        of_row(args.qv, tile.batch * args.qv_stride_batch + query * args.qv_stride_seq +
                            head * args.qv_stride_head);
    const char* const q = of_row(args.q, tile.batch * args.q_stride_batch +
                                             query * args.q_stride_seq + head * args.q_stride_head);
    const uint32_t bytes = row < tile.n_rows ? 16 : 0;
    static_for<0, kPieces>([&](auto piece) {
      const int vector = piece * kLanes + at.lane;
      if (vector >= kVectors) return;
      const bool rotated = vector >= kValueVectors;
      ptx::cp_async_16_zero_fill<0>(address(row, vector),
                                    rotated ? q + (vector - kValueVectors) * 16 : qv + vector * 16,
                                    bytes);
    });
  }
  FLASH_DEVICE static const char* of_row(const void* tensor, int64_t element) {
    return static_cast<const char*>(tensor) + element * bytes_of(kConfig.dtype);
  }
};

}  // namespace flash::sm90_serve_mla
