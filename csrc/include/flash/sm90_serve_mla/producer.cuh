// The warp that has the copy engine load keys: blocks of rows, wherever they lie, through a ring in
// shared memory whose stages are given back by halves.
#pragma once

#include "flash/ptx/elect.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm80_serve_mla/serve.cuh"
#include "flash/sm90/ring.cuh"
#include "flash/sm90_serve_mla/args.h"
#include "flash/sm90_serve_mla/place.cuh"

namespace flash::sm90_serve_mla {

// A lane looks one part of each block up, if there are as many; one of them copies all.
template <HopperMlaKernelConfig kConfig>
class Producer {
 public:
  using Piece = sm80_serve::Piece<kConfig.ampere().serving()>;
  using Pieces = sm80_serve_mla::ParkedPieces<kConfig.ampere()>;

  FLASH_DEVICE Producer(const ServeKernelArgs& args, const Place<kConfig>& at)
      : args_(args), at_(at), first_row_(at.lane * args.part_rows) {}

  // `piece`: the first; `pieces`: those behind it.
  FLASH_DEVICE void run(Piece piece, Pieces& pieces, const sm80_serve::Abreast& abreast) {
    for (;; piece = pieces.next(args_.call, abreast)) {
      if (args_.part_rows == kConfig.B_c) {
        load<true>(piece);
      } else {
        load<false>(piece);
      }
      if (pieces.is_at_end()) return;
    }
  }

 private:
  static constexpr int kNoPage = -1;

  // Where a part of a block lies.
  struct Part {
    int page;
    int row;  // of the page
  };

  // All that can be known of a block before its halves are given back is found before: what stands
  // between that and the copies makes everything later. kIsOnePart: blocks lie in one page each.
  template <bool kIsOnePart>
  FLASH_DEVICE void load(const Piece& piece) {
    const Blocks<kConfig> blocks(piece.keys);
    Part ahead = look_up(piece, blocks.first);
    for (int i = 0; i < blocks.n; ++i) {
      const Part part = kIsOnePart ? of_lane(ahead, 0) : ahead;
      ahead = look_up(piece, blocks.first + (i + 1) * kConfig.B_c);
      copy<kLeft, kIsOnePart>(piece, part);
      copy<kRight, kIsOnePart>(piece, part);
      ring_.advance();
    }
  }

  // This lane's part of the block that begins with `key`. Of a part that no query of the piece sees
  // neither the entry nor the page is read: page -1 does not exist, and is zeros.
  FLASH_DEVICE Part look_up(const Piece& piece, int key) const {
    key += first_row_;
    if (first_row_ >= kConfig.B_c || key + args_.part_rows <= piece.keys.begin ||
        key >= piece.keys.end) {
      return {kNoPage, 0};
    }
    const ServeArgs& call = args_.call;
    if (call.block_table == nullptr) {
      return {call.cu_seqlens_k == nullptr ? piece.tile.page : 0, piece.tile.first_key + key};
    }
    const int number = key / args_.page_keys;
    return {call.block_table[piece.tile.batch * call.table_stride + number],
            key - number * args_.page_keys};
  }

  FLASH_DEVICE static Part of_lane(const Part& part, int lane) {
    return {__shfl_sync(0xffffffffu, part.page, lane), __shfl_sync(0xffffffffu, part.row, lane)};
  }

  template <Half kHalf, bool kIsOnePart>
  FLASH_DEVICE void copy(const Piece& piece, const Part& part) {
    constexpr int kChunks = kConfig.group_chunks() + (kHalf == kLeft ? 0 : kRotatedChunks);
    sm90::wait_phase(at_.empty(ring_.buffer, kHalf), ring_.parity ^ 1);
    if (ptx::elect_one()) {
      ptx::mbarrier_arrive_expect_tx(at_.full(ring_.buffer, kHalf),
                                     kChunks * kConfig.chunk_bytes(kConfig.B_c));
      if constexpr (kIsOnePart) copy_part<kHalf, kConfig.group_chunks()>(piece, part, 0);
    }
    if constexpr (!kIsOnePart) {
#pragma unroll 1
      for (int lane = 0, row = 0; row < kConfig.B_c; ++lane, row += args_.part_rows) {
        const Part from = of_lane(part, lane);
        if (ptx::elect_one()) copy_part<kHalf, 1>(piece, from, row);
      }
    }
  }

  // To rows of a stage from `row` on. A box of values has kBoxChunks chunks.
  template <Half kHalf, int kBoxChunks>
  FLASH_DEVICE void copy_part(const Piece& piece, const Part& from, int row) const {
    constexpr int kFirst = kHalf == kLeft ? 0 : kConfig.group_chunks();
    const auto load = [&](const sm90::TensorMap& map, int first, int chunk) {
      ptx::tma_load_5d(at_.chunk(ring_.buffer, first + chunk) + kConfig.chunk_bytes(row), &map,
                       at_.full(ring_.buffer, kHalf), 0, from.row, chunk, piece.tile.kv_head,
                       from.page, ptx::kEvictLast);
    };
#pragma unroll
    for (int chunk = 0; chunk < kConfig.group_chunks(); chunk += kBoxChunks) {
      load(args_.v, 0, kFirst + chunk);
    }
    if constexpr (kHalf == kRight) {
#pragma unroll
      for (int chunk = 0; chunk < kRotatedChunks; ++chunk) {
        load(args_.k, kConfig.value_chunks(), chunk);
      }
    }
  }

  static constexpr int kRotatedChunks = kConfig.n_chunks() - kConfig.value_chunks();

  const ServeKernelArgs& args_;
  const Place<kConfig>& at_;
  const int first_row_;  // of this lane's part of a block
  sm90::RingPosition<kConfig.n_stages> ring_;
};

}  // namespace flash::sm90_serve_mla
