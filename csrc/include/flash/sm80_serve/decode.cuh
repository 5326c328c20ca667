// Attention of few rows with many keys: as fast as memory gives the keys.
//
// A thread block has a share of the keys of the whole call (shares.cuh), of one tile after the
// other. Its warps share the keys of every block. Blocks of the next tile are on their way while a
// tile ends, so that the stream of keys never stops.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/forward/softmax.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/keys.cuh"
#include "flash/sm80_serve/matmuls.cuh"
#include "flash/sm80_serve/parts.cuh"
#include "flash/sm80_serve/queries.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve/sums.cuh"

namespace flash::sm80_serve {

// Fills the ring: a warp's part of the blocks of all pieces, one after the other.
template <AmpereServeKernelConfig kConfig, typename Stream = KeyStream<kConfig>,
          typename ItsPieces = Pieces<kConfig>>
class BlockLoader {
 public:
  FLASH_DEVICE BlockLoader(const Stream& stream, const ItsPieces& pieces)
      : stream_(stream), pieces_(pieces) {}

  // Fills all stages but the one that the first issue() is given. `first`: the first piece, behind
  // which `pieces` is. (Found once, and filled in a loop: a short call takes longer to fetch its
  // instructions than to run them.)
  FLASH_DEVICE void begin(const Piece<kConfig>& first, const Pieces<kConfig>& pieces) {
    pieces_ = pieces;
    go_to(first);
    look_up();
#pragma unroll 1
    for (int stage = 0; stage < kConfig.n_stages - 1; ++stage) issue(stage);
  }

  // The next block, to a stage that is free; an empty group where there is none.
  FLASH_DEVICE void issue(int stage) {
    if (has_block_) {
      stream_.issue(stage);
      key_ += kConfig.B_c;
    }
    ptx::cp_async_commit_group();
    if (has_block_) look_up();
  }

  // Shared address of this warp's slice of a stage.
  FLASH_DEVICE uint32_t slice(int stage) const {
    return stream_.slice + stage * kConfig.stage_bytes();
  }

 private:
  FLASH_DEVICE void look_up() {
    while (key_ >= keys_.end) {  // pieces without keys have no blocks
      has_block_ = !pieces_.is_at_end();
      if (!has_block_) return;
      go_to(pieces_.next(stream_.args));
    }
    stream_.look_up(place_, keys_, key_);
  }
  FLASH_DEVICE void go_to(const Piece<kConfig>& piece) {
    place_ = place_of(piece.tile);
    keys_ = piece.keys;
    key_ = keys_.begin;
  }

  Stream stream_;
  ItsPieces pieces_;
  KeyPlace place_;          // of the piece
  KeyRange keys_ = {0, 0};  // of the piece
  int key_ = 0;             // the first of the block that was looked up
  bool has_block_ = true;
};

// Writes the rows of a piece whose sums the warps have left: the tile's result, or a part of it.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void write_piece(const ServeArgs& args, const Piece<kConfig>& piece, int64_t share,
                              const Sums<kConfig>& sums, uint32_t* flag) {
  const Parts<kConfig> parts(args, piece, share);
  merge_rows<kConfig, kConfig.key_warps()>(
      piece.tile, kConfig.key_warps(), piece.is_whole ? args.sinks : nullptr,
      [&](int key_warp, int r) { return sums.lse(key_warp, r); },
      [&](int key_warp, int r, int column) { return sums.of(key_warp, r, column); },
      [&](int r, int column, const MergedColumns& merged) {
        if (piece.is_whole) {
          store_result(args, piece.tile, r, column, merged);
        } else {
          parts.leave(parts.own(), r, column, merged, false);
        }
      });
  if (!piece.is_whole) parts.arrive(flag);
}

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void decode(const ServeArgs& args) {
  const auto matmuls = make_matmuls<kConfig>(args);
  using Mm = decltype(matmuls);
  using Lane = typename Mm::Lane;
  constexpr int kStages = kConfig.n_stages;
  constexpr int kLses = kConfig.q_bytes() + kStages * kConfig.stage_bytes();
  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int lane = threadIdx.x % AmpereServeKernelConfig::kWarpSize;
  const int warp = threadIdx.x / AmpereServeKernelConfig::kWarpSize;
  const int warp_row = warp % kConfig.row_warps() * 16;
  const int first_column = warp / kConfig.row_warps() * kConfig.slice_keys();

  const Share<kConfig> share(args, lane);
  if (share.begin == share.end) return;
  Pieces<kConfig> pieces(share);
  BlockLoader<kConfig> loader(KeyStream<kConfig>(args, smem + kConfig.q_bytes(), warp, lane),
                              pieces);
  int stage = kStages - 1;
  bool is_first = true;
  while (!pieces.is_at_end()) {
    const Piece<kConfig> piece = pieces.next(args);
    const bool idle = warp_row >= piece.tile.n_rows;  // it copies keys for the others
    const QueryRows<kConfig> queries(args, piece.tile);
    if (is_first) loader.begin(piece, pieces);
    is_first = false;
    queries.store(smem);
    __syncthreads();  // Q is visible; the sums of the piece before were read
    typename Mm::QOperand q;
    q.prologue(Lane(smem + warp_row * Mm::Tile::kRowBytes, lane, MatrixOrder::kRowsFirst));
    const ScoreRules<kConfig> rules(args, piece.tile, piece.keys, warp_row, lane);
    const KeyRange whole = piece.seen_by_all();
    sm80::OnlineSoftmax<1, true> softmax(args.softmax_scale);
    typename Mm::Output o;
    Mm::clear(o);
    for (int key = piece.keys.begin; key < piece.keys.end; key += kConfig.B_c) {
      const int free_stage = stage;
      stage = stage == kStages - 1 ? 0 : stage + 1;
      ptx::cp_async_wait_group<kStages - 2>();
      sync_readers<kConfig>();  // this block is visible; every warp has read the one before
      loader.issue(free_stage);
      if (idle) continue;

      // The matmuls' tile offsets count from where Q would lie before the slice.
      const uint32_t slice = loader.slice(stage) - static_cast<uint32_t>(Mm::kKOffset);
      typename Mm::Scores s;
      matmuls.scores(s, q, Lane(slice, lane, MatrixOrder::kRowsFirst),
                     Lane(slice, lane, MatrixOrder::kColumnsFirst));
      if (args.softcap != 0.0f) rules.cap_scores(s[0]);
      if (key < whole.begin || key + kConfig.B_c > whole.end) rules.hide(s[0], key + first_column);
      // As if all blocks so far were one: their number would not fit the registers.
      softmax.template update</*kFirst=*/false, /*kMasked=*/true>(s, o, /*n_before=*/1);
      matmuls.accumulate(o, s, Lane(slice, lane, MatrixOrder::kRowsFirst));
    }

    sync_readers<kConfig>();  // the stage that was read last is free
    const Sums<kConfig> sums = {
        reinterpret_cast<float*>(shared_memory + kConfig.q_bytes() + stage * kConfig.stage_bytes()),
        reinterpret_cast<float*>(shared_memory + kLses)};
    if (!idle) sums.template store<Mm>(o, softmax, warp, lane);
    __syncthreads();  // the sums of all warps are visible
    write_piece(args, piece, share.each, sums,
                reinterpret_cast<uint32_t*>(shared_memory + kLses + kConfig.lse_bytes()));
  }
  ptx::cp_async_wait_group<0>();
}

}  // namespace flash::sm80_serve
