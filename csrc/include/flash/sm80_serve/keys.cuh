// The stream of keys and values: blocks of rows, wherever they lie, through a ring in shared
// memory.
//
// A warp copies rows of the slice of each block that it reads itself. Where no other warp reads
// them (a tile of one warp's rows), warps need not wait for each other at all.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/cp_async.cuh"
#include "flash/ptx/named_barrier.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"
#include "flash/tile/divisor.cuh"
#include "flash/tile/shared_tile.h"
#include "flash/tile/static_for.cuh"

namespace flash::sm80_serve {

// Lets warps that read each other's keys wait for each other: those with the same slice of a block,
// by a named barrier for each slice.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void sync_readers(int warp) {
  if constexpr (kConfig.row_warps() == 1) {
    __syncwarp();
  } else if constexpr (kConfig.key_warps() == 1) {
    __syncthreads();
  } else {
    ptx::bar_sync(1 + warp / kConfig.row_warps(),
                  kConfig.row_warps() * AmpereServeKernelConfig::kWarpSize);
  }
}

// The rows of a block that a warp copies: a lane looks up where one of them lies, and finds it a
// block later. So nobody waits for the table's entry, if it was asked for before the last copies
// were: a multiprocessor's loads come in their order, and an entry behind the copies of a block
// comes when all of that block has.
template <DType kDType, int kRows>
struct KeyRows {
  static constexpr int kChunkBytes = 16;
  static_assert(kRows <= AmpereServeKernelConfig::kWarpSize, "a lane looks up one row");

  const ServeArgs& args;
  Divisor page_size;
  int first_key;  // of this warp's rows in a block
  int lane;
  // The row of the block that this lane has looked up: nothing may depend on its page before
  // find(), or the warp waits for the table.
  uint32_t asked_page = 0;
  uint32_t asked_row = 0;  // of the page
  int kv_head = 0;
  bool is_read = false;
  // Of the block that was found: the lane's row in K and in V, or some other address, and which
  // rows are read, a bit each.
  const char *k_row, *v_row;
  uint32_t rows_read = 0;

  FLASH_DEVICE KeyRows(const ServeArgs& serve_args, int first, int own_lane)
      : args(serve_args),
        page_size(serve_args.block_table == nullptr
                      ? Divisor(1, Divisor::kLargest)
                      : Divisor(static_cast<uint32_t>(max(serve_args.page_size, 1)))),
        first_key(first),
        lane(own_lane),
        k_row(static_cast<const char*>(serve_args.k)),
        v_row(static_cast<const char*>(serve_args.v)) {}

  // Asks for the rows of the block that begins with key `first`, which are copied next: its table
  // entries are on their way while the blocks before it are computed. `keys`: no other is read.
  template <AmpereServeKernelConfig kConfig>
  FLASH_DEVICE void look_up(const Tile<kConfig>& tile, const KeyRange& keys, int first) {
    const int key = first + first_key + lane;
    is_read = lane < kRows && keys.has(key);
    kv_head = tile.kv_head;
    if (is_read) ask(tile.batch, tile.page, key, tile.first_key);
  }

  // The same of the first block of sequence `batch`, all of whose keys exist.
  FLASH_DEVICE void look_up_first(int batch, int head) {
    is_read = lane < kRows;
    kv_head = head;
    if (is_read) ask(batch, batch, first_key + lane);
  }

  // Finds the rows that were asked for: others may be looked up then, before these are copied.
  FLASH_DEVICE void find() {
    rows_read = __ballot_sync(0xffffffffu, is_read);
    k_row = static_cast<const char*>(args.k);
    v_row = static_cast<const char*>(args.v);
    if (!is_read) return;
    const int64_t page = asked_page;
    const int64_t row = asked_row;
    k_row += (page * args.k_stride_page + row * args.k_stride_seq + kv_head * args.k_stride_head) *
             bytes_of(kDType);
    v_row += (page * args.v_stride_page + row * args.v_stride_seq + kv_head * args.v_stride_head) *
             bytes_of(kDType);
  }

  // Asks where a key lies. `page`, `first`: of a sequence without a table.
  FLASH_DEVICE void ask(int batch, int page, int key, int first = 0) {
    if (args.block_table == nullptr) {
      asked_page = page;
      asked_row = first + key;
      return;
    }
    const Divisor::Result place = page_size.divide(key);
    asked_row = place.remainder;
    asked_page = args.block_table[batch * args.table_stride + place.quotient];
  }

 protected:
  FLASH_DEVICE static const char* broadcast(const char* address, int from_lane) {
    return reinterpret_cast<const char*>(
        __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(address), from_lane));
  }
  FLASH_DEVICE static void copy(uint32_t to, const char* row, int chunk, bool exists) {
    // Nothing is read where no byte is asked for, but the address has to exist.
    ptx::cp_async_16_zero_fill<0>(to, row + (exists ? chunk * kChunkBytes : 0),
                                  exists ? kChunkBytes : 0);
  }
};

template <AmpereServeKernelConfig kConfig>
struct KeyStream : KeyRows<kConfig.dtype, kConfig.B_c / kConfig.n_warps> {
  using Shared = SharedTile<kConfig.d_head, true>;
  static constexpr int kRows = kConfig.B_c / kConfig.n_warps;  // of a block, by this warp
  // Lanes that copy neighbouring chunks of a row at a time, 128 bytes; with 32 bytes at a time, as
  // few shuffles as can be, a stream took 15 % longer.
  static constexpr int kLanesPerRow = 8;
  static constexpr int kRowsPerStep = AmpereServeKernelConfig::kWarpSize / kLanesPerRow;
  // The next block is looked up before this one is copied, and a sequence's lengths once. Wide
  // heads have no registers for it: 259 us in place of 253 (16 x 8192, 256, soft cap).
  static constexpr bool kLoadsBeforeCopies = !kConfig.is_wide();
  static_assert(kRows % kRowsPerStep == 0 && Shared::kChunksPerRow % kLanesPerRow == 0);

  uint32_t slice;  // shared address of the warp's slice of the first stage
  int first_row;   // of this warp's rows in its slice

  FLASH_DEVICE KeyStream(const ServeArgs& serve_args, uint32_t ring, int warp, int own_lane)
      : KeyRows<kConfig.dtype, kRows>(serve_args, 0, own_lane) {
    const int key_warp = warp / kConfig.row_warps();
    first_row = warp % kConfig.row_warps() * kRows;
    this->first_key = key_warp * kConfig.slice_keys() + first_row;
    slice = ring + key_warp * 2 * kConfig.slice_bytes();
  }

  // Copies the rows that were found to a stage of the ring. What is not read becomes zero: the
  // weight of a value that nobody sees is 0, and must not meet a NaN.
  FLASH_DEVICE void copy_to(int stage) const {
    const unsigned chunk = this->lane % kLanesPerRow;  // the lane's first
    const int own_row = this->lane / kLanesPerRow;     // of each step
    const uint32_t rows_read = this->rows_read >> own_row;
    const uint32_t to =
        slice + stage * kConfig.stage_bytes() + Shared::offset(first_row + own_row, chunk);
    const int k_chunks = this->args.d_head / 8 - chunk;
    const int v_chunks = this->args.d_v / 8 - chunk;
    static_for<0, kRows / kRowsPerStep>([&](auto step) {
      constexpr int kRow = step * kRowsPerStep;
      const char* const k_row =
          this->broadcast(this->k_row, kRow + own_row) + chunk * this->kChunkBytes;
      const char* const v_row =
          this->broadcast(this->v_row, kRow + own_row) + chunk * this->kChunkBytes;
      const bool is_read = rows_read >> kRow & 1;
      static_for<0, Shared::kChunksPerRow, kLanesPerRow>([&](auto behind) {
        // Rows of steps have other bits than own_row and first_row, and chunks behind the first
        // other bits than it: what they swizzle is combined by XOR, and what they add is constant.
        const uint32_t place =
            to ^ (Shared::offset(kRow, 0) % Shared::kRowBytes ^ Shared::xor_bytes(behind));
        constexpr int kOffset = kRow * Shared::kRowBytes + Shared::add_bytes(behind);
        copy<kOffset>(place, k_row + behind * this->kChunkBytes,
                      is_read && behind < k_chunks ? this->kChunkBytes : 0);
        copy<kOffset + kConfig.slice_bytes()>(place, v_row + behind * this->kChunkBytes,
                                              is_read && behind < v_chunks ? this->kChunkBytes : 0);
      });
    });
  }

 private:
  // Keys of new tokens are read once, by one tile or by tiles that run at the same time; those of
  // prompts by many tiles, one after the other.
  template <int kOffset>
  FLASH_DEVICE static void copy(uint32_t to, const char* from, uint32_t n_bytes) {
    if constexpr (kConfig.shares_keys()) {
      ptx::cp_async_16_zero_fill_once<kOffset>(to, from, n_bytes);
    } else {
      ptx::cp_async_16_zero_fill<kOffset>(to, from, n_bytes);
    }
  }
};

}  // namespace flash::sm80_serve
