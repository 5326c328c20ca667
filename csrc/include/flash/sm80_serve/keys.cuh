// The stream of keys and values: blocks of rows, wherever they lie, through a ring in shared
// memory.
//
// A warp copies rows of the slice of each block that it reads itself. Where no other warp reads
// them (a tile of one warp's rows), warps need not wait for each other at all.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/cp_async.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// Lets warps that read each other's keys wait for each other.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void sync_readers() {
  if constexpr (kConfig.row_warps() > 1) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

template <AmpereServeKernelConfig kConfig>
struct KeyStream {
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kWarpSize = AmpereServeKernelConfig::kWarpSize;
  static constexpr int kRows = kConfig.B_c / kConfig.n_warps;  // of a block, by this warp
  static constexpr int kRowsPerStep = kWarpSize / Shared::kChunksPerRow;
  static_assert(kRows <= kWarpSize, "a lane looks up one row");
  static_assert(kRows % kRowsPerStep == 0);

  const ServeArgs& args;
  uint32_t slice;  // shared address of the warp's slice of the first stage
  int first_row;   // of this warp's rows in its slice
  int first_key;   // of this warp's rows in a block
  int lane;
  int kv_head;  // of the block that was looked up
  int page;     // of its row that this lane has looked up
  int row;      // in the page; negative: it is not read

  FLASH_DEVICE KeyStream(const ServeArgs& serve_args, uint32_t ring, int warp, int own_lane)
      : args(serve_args), lane(own_lane) {
    const int key_warp = warp / kConfig.row_warps();
    first_row = warp % kConfig.row_warps() * kRows;
    first_key = key_warp * kConfig.slice_keys() + first_row;
    slice = ring + key_warp * 2 * kConfig.slice_bytes();
  }

  // Finds the rows of the block that begins with key `first`, which the next issue() copies: its
  // table entries are on their way while the blocks before it are computed. `keys`: no other is
  // read.
  FLASH_DEVICE void look_up(const Tile<kConfig>& tile, const KeyRange& keys, int first) {
    const int key = first + first_key + lane;
    kv_head = tile.kv_head;
    page = tile.page;
    row = -1;
    if (lane >= kRows || !keys.has(key)) return;
    if (args.block_table == nullptr) {
      row = tile.first_key + key;
    } else {
      page = args.block_table[tile.batch * args.table_stride + key / args.page_size];
      row = key % args.page_size;
    }
  }

  // Copies the rows that were looked up to a stage of the ring. What is not read becomes zero: the
  // weight of a value that nobody sees is 0, and must not meet a NaN.
  FLASH_DEVICE void issue(int stage) const {
    const int chunk = lane % Shared::kChunksPerRow;
    const uint32_t k_tile = slice + stage * kConfig.stage_bytes();
    const uint32_t v_tile = k_tile + kConfig.slice_bytes();
    const int64_t k_column = kv_head * args.k_stride_head + chunk * 8;
    const int64_t v_column = kv_head * args.v_stride_head + chunk * 8;
    static_for<0, kRows / kRowsPerStep>([&](auto step) {
      const int r = step * kRowsPerStep + lane / Shared::kChunksPerRow;
      const int64_t from_page = __shfl_sync(0xffffffffu, page, r);
      const int64_t from_row = __shfl_sync(0xffffffffu, row, r);
      const int64_t k = from_page * args.k_stride_page + from_row * args.k_stride_seq + k_column;
      const int64_t v = from_page * args.v_stride_page + from_row * args.v_stride_seq + v_column;
      const int place = Shared::offset(first_row + r, chunk);
      const bool exists = from_row >= 0;
      copy(k_tile + place, args.k, k, exists && chunk * 8 < args.d_head);
      copy(v_tile + place, args.v, v, exists && chunk * 8 < args.d_v);
    });
  }

 private:
  FLASH_DEVICE static void copy(uint32_t to, const void* from, int64_t element, bool exists) {
    const char* const source =
        static_cast<const char*>(from) + (exists ? element * bytes_of(kConfig.dtype) : 0);
    ptx::cp_async_16_zero_fill<0>(to, source, exists ? Shared::kChunkBytes : 0);
  }
};

}  // namespace flash::sm80_serve
