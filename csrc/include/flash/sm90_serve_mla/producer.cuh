// The warp that has the copy engine load keys: blocks of rows, wherever they lie, through a ring in
// shared memory whose stages are given back by halves.
#pragma once

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

  FLASH_DEVICE Producer(const ServeKernelArgs& args, const Place<kConfig>& at)
      : args_(args), at_(at), first_row_(at.lane * args.part_rows) {}

  FLASH_DEVICE void run() {
    constexpr auto kAmpere = kConfig.ampere();
    sm80_serve_mla::ParkedPieces<kAmpere> pieces(&at_.state().pieces, at_.lane);
    sm80_serve::UnitCount share_units;
    const sm80_serve::Abreast abreast(args_.abreast);
    if (!sm80_serve_mla::find_pieces<kAmpere>(args_.call, at_.lane, pieces, share_units, abreast)) {
      return;
    }
    while (!pieces.is_at_end()) load(pieces.next(args_.call, abreast));
  }

 private:
  static constexpr int kNoPage = -1;

  FLASH_DEVICE void load(const Piece& piece) {
    const Blocks<kConfig> blocks(piece.keys);
    int ahead = look_up(piece, blocks.first);
    for (int i = 0; i < blocks.n; ++i) {
      const int key = blocks.first + i * kConfig.B_c;
      const int page = ahead;
      ahead = look_up(piece, key + kConfig.B_c);
      copy<kLeft>(piece, key, page);
      copy<kRight>(piece, key, page);
      ring_.advance();
    }
  }

  // The page of this lane's part of the block that begins with `key`. Of a part that no query of
  // the piece sees neither the entry nor the page is read: page -1 does not exist, and is zeros.
  FLASH_DEVICE int look_up(const Piece& piece, int key) const {
    key += first_row_;
    if (first_row_ >= kConfig.B_c || key + args_.part_rows <= piece.keys.begin ||
        key >= piece.keys.end) {
      return kNoPage;
    }
    const ServeArgs& call = args_.call;
    if (call.block_table == nullptr) return call.cu_seqlens_k == nullptr ? piece.tile.page : 0;
    return call.block_table[piece.tile.batch * call.table_stride + key / args_.page_keys];
  }

  template <Half kHalf>
  FLASH_DEVICE void copy(const Piece& piece, int key, int page) {
    constexpr int kFirst = kHalf == kLeft ? 0 : kConfig.group_chunks();
    constexpr int kEnd = kHalf == kLeft ? kConfig.group_chunks() : kConfig.n_chunks();
    const uint32_t full = at_.full(ring_.buffer, kHalf);
    sm90::wait_phase(at_.empty(ring_.buffer, kHalf), ring_.parity ^ 1);
    if (at_.lane == 0) {
      ptx::mbarrier_arrive_expect_tx(full, (kEnd - kFirst) * kConfig.chunk_bytes(kConfig.B_c));
    }
    int row = key % args_.page_keys;  // of its page
    for (int part = 0; part * args_.part_rows < kConfig.B_c; ++part) {
      const int from_page = __shfl_sync(0xffffffffu, page, part);
      if (at_.lane == 0) {
#pragma unroll
        for (int chunk = kFirst; chunk < kEnd; ++chunk) {
          const bool rotated = chunk >= kConfig.value_chunks();
          ptx::tma_load_5d(
              at_.chunk(ring_.buffer, chunk) + kConfig.chunk_bytes(part * args_.part_rows),
              rotated ? &args_.k : &args_.v, full, 0, piece.tile.first_key + row,
              rotated ? chunk - kConfig.value_chunks() : chunk, piece.tile.kv_head, from_page,
              ptx::kEvictLast);
        }
      }
      row += args_.part_rows;
      if (row >= args_.page_keys) row = 0;
    }
  }

  const ServeKernelArgs& args_;
  const Place<kConfig>& at_;
  const int first_row_;  // of this lane's part of a block
  sm90::RingPosition<kConfig.n_stages> ring_;
};

}  // namespace flash::sm90_serve_mla
