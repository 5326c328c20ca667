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
#include "flash/sm80_serve/first_block.cuh"
#include "flash/sm80_serve/keys.cuh"
#include "flash/sm80_serve/matmuls.cuh"
#include "flash/sm80_serve/parts.cuh"
#include "flash/sm80_serve/piece_ring.cuh"
#include "flash/sm80_serve/queries.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve/sums.cuh"

namespace flash::sm80_serve {

// Fills the ring: a warp's part of the blocks of all pieces, one after the other. A piece without
// keys has a block, too, of which nothing is read.
template <AmpereServeKernelConfig kConfig, typename Stream = KeyStream<kConfig>,
          typename ItsPieces = Pieces<kConfig>, typename ItsAbreast = Abreast>
class BlockLoader {
 public:
  // `ring`: of the pieces whose blocks were looked up.
  FLASH_DEVICE BlockLoader(const Stream& stream, const ItsPieces& pieces, PieceRing<kConfig>& ring,
                           const ItsAbreast& abreast = {})
      : stream_(stream), pieces_(pieces), ring_(ring), abreast_(abreast) {}

  // Asks for the block that was looked up, to a stage that is free, and looks the next one up: the
  // first call only does that. Where there is no block, an empty group.
  FLASH_DEVICE void issue(int stage) {
    bool is_looked_up = false;
    if (has_block_) {
      stream_.find();
      if (Stream::kLoadsBeforeCopies && key_ + kConfig.B_c < ring_.newest().keys.end) {
        key_ += kConfig.B_c;
        stream_.look_up(ring_.newest().tile, ring_.newest().keys, key_);
        is_looked_up = true;
      }
      stream_.copy_to(stage);
    }
    ptx::cp_async_commit_group();
    if (!is_looked_up && !is_at_end_) look_up();
  }

  // The block that was looked up is on its way already: the next one of its piece is looked up.
  FLASH_DEVICE void pass_first() {
    key_ += kConfig.B_c;
    stream_.look_up(ring_.newest().tile, ring_.newest().keys, key_);
  }

  // Shared address of this warp's slice of a stage.
  FLASH_DEVICE uint32_t slice(int stage) const {
    return stream_.slice + stage * kConfig.stage_bytes();
  }

 private:
  FLASH_DEVICE void look_up() {
    key_ += kConfig.B_c;
    if (ring_.is_empty() || key_ >= ring_.newest().keys.end) {
      is_at_end_ = pieces_.is_at_end();
      has_block_ = !is_at_end_;
      if (is_at_end_) return;
      const bool knows = Stream::kLoadsBeforeCopies && ring_.knows_sequence();
      const Sequence* last = nullptr;
      if (knows) {
        last = &ring_.newest().tile;
        __builtin_assume(last != nullptr);  // shared memory has no generic address 0
      }
      ring_.add(pieces_.next(stream_.args, abreast_, last));
      key_ = ring_.newest().keys.begin;
    }
    stream_.look_up(ring_.newest().tile, ring_.newest().keys, key_);
  }

  Stream stream_;
  ItsPieces pieces_;
  PieceRing<kConfig>& ring_;
  ItsAbreast abreast_;
  int key_ = 0;  // the first of the block that was looked up, of the newest piece
  bool has_block_ = false;
  bool is_at_end_ = false;
};

// Writes the rows of a piece whose sums the warps have left: the tile's result, or a part of it.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void write_piece(const ServeArgs& args, const Piece<kConfig>& piece, UnitCount share,
                              const HeadsAbreast& abreast, const Sums<kConfig>& sums,
                              uint32_t* flag) {
  // Each of the two has a merge of its own: results do not wait for divisions that find parts.
  const auto merge = [&](const float* sinks, const auto& store) {
    merge_rows<kConfig, kConfig.key_warps()>(
        piece.tile, kConfig.key_warps(), sinks,
        [&](int key_warp, int r) { return sums.lse(key_warp, r); },
        [&](int key_warp, int r, int column) { return sums.of(key_warp, r, column); }, store);
  };
  if (piece.is_whole) {
    merge(args.sinks, [&](int r, int column, const MergedColumns& merged) {
      store_result(args, piece.tile, r, column, merged);
    });
    return;
  }
  const Parts<kConfig, HeadsAbreast> parts(args, piece, share, abreast);
  merge(nullptr, [&](int r, int column, const MergedColumns& merged) {
    parts.leave(parts.own(), r, column, merged, false);
  });
  parts.arrive(flag);
}

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void decode(const ServeArgs& args) {
  const auto matmuls = make_matmuls<kConfig>(args);
  using Mm = decltype(matmuls);
  using Lane = typename Mm::Lane;
  constexpr int kStages = kConfig.n_stages;
  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int lane = threadIdx.x % AmpereServeKernelConfig::kWarpSize;
  const int warp = threadIdx.x / AmpereServeKernelConfig::kWarpSize;
  const int warp_row = warp % kConfig.row_warps() * 16;
  const int first_column = warp / kConfig.row_warps() * kConfig.slice_keys();
  const auto sums_in = [&](int stage) {
    return Sums<kConfig>{
        reinterpret_cast<float*>(shared_memory + kConfig.q_bytes() + stage * kConfig.stage_bytes()),
        reinterpret_cast<float*>(shared_memory + kConfig.lse_offset())};
  };

  auto* const counts = reinterpret_cast<Team::Count*>(shared_memory + kConfig.lse_offset());
  PieceRing<kConfig> ring(shared_memory + kConfig.pieces_offset(), warp, lane);
  const HeadsAbreast abreast(args, kConfig.min_blocks_per_sm() > 1);
  const Team team = {warp, kConfig.n_warps, counts};
  const int used = team.first_used(args, lane);  // it would come behind keys
  // What it needs is computed while lengths come.
  KeyStream<kConfig> stream(args, smem + kConfig.q_bytes(), warp, lane);
  FirstBlock<kConfig> first_block(args, abreast);
  first_block.copy(stream, abreast.first_head(), /*stage=*/0);
  const Share<kConfig> share(args, lane, team, abreast, &ring.before_first(), &used);
  if (share.begin == share.end) {
    ptx::cp_async_wait_group<0>();  // copies end before the thread block
    return;
  }
  __syncwarp();  // its first sequence is visible
  BlockLoader<kConfig, KeyStream<kConfig>, Pieces<kConfig>, HeadsAbreast> loader(
      stream, Pieces<kConfig>(share), ring, abreast);
  // The first piece is found, then the ring is filled, by steps as those of a piece, and every
  // piece begins and ends in one place: a short call takes longer to fetch its instructions than to
  // run them. Queries are copied as soon as their piece is found and those before them were read.
  // By ordinary loads a warp would wait for them at the next step: those of the first piece before
  // its first keys, others until all keys had come that were asked for before. (Wide heads read
  // theirs until the piece ends, and load the next ones then.)
  enum { kFinds, kFills, kComputes } pass = kFinds;
  int stage = 0;               // the one that was read last
  int n_steps = 1;             // of the pass
  QueryRows<kConfig> queries;  // of the next piece, of wide heads
  bool has_copied = false;     // the next piece's
  int n_steps_since = 0;       // that began to copy keys
  typename Mm::QOperand q;
  typename Mm::Output o;
  sm80::OnlineSoftmax<1, true> softmax(args.softmax_scale);
  KeyRange whole = {};  // that all rows of the piece see
  bool idle = true;     // this warp has no rows: it copies keys for the others
  int key = 0;          // the first of a block
#pragma unroll 1
  for (;;) {
#pragma unroll 1
    for (; n_steps > 0; --n_steps, key += kConfig.B_c) {
      const int free_stage = stage;
      stage = stage == kStages - 1 ? 0 : stage + 1;
      if (pass == kComputes) {
        ptx::cp_async_wait_group<kStages - 2>();
        sync_readers<kConfig>(warp);  // this block is visible; every warp has read the one before
      }
      loader.issue(free_stage);
      ++n_steps_since;
      if (!kConfig.is_wide() && !has_copied && ring.has_next()) {
        QueryRows<kConfig>::copy(args, ring.next().tile, smem);
        if (pass == kFinds) ptx::cp_async_commit_group();  // else they belong to the next keys
        has_copied = true;
        n_steps_since = 0;
      }
      if (idle) continue;

      // The matmuls' tile offsets count from where Q would lie before the slice.
      const uint32_t slice = loader.slice(stage) - static_cast<uint32_t>(Mm::kKOffset);
      typename Mm::Scores s;
      matmuls.scores(s, q, Lane(slice, lane, MatrixOrder::kRowsFirst),
                     Lane(slice, lane, MatrixOrder::kColumnsFirst));
      const bool hides = key < whole.begin || key + kConfig.B_c > whole.end;
      if (hides || args.softcap != 0.0f) {  // rules take registers: no block needs them but these
        const ScoreRules<kConfig> rules(args, ring.current().tile, ring.current().keys, warp_row,
                                        lane);
        if (args.softcap != 0.0f) rules.cap_scores(s[0]);
        if (hides) rules.hide(s[0], key + first_column);
      }
      // As if all blocks so far were one: their number would not fit the registers.
      softmax.template update</*kFirst=*/false, /*kMasked=*/true>(s, o, /*n_before=*/1);
      matmuls.accumulate(o, s, Lane(slice, lane, MatrixOrder::kRowsFirst));
    }

    if (pass == kComputes) {
      sync_readers<kConfig>(warp);  // the stage that was read last is free
      if (!idle) {
        sums_in(stage).template store<Mm>(o, softmax, warp, lane, ring.current().tile.n_rows);
      }
    }
    if (kConfig.is_wide() && pass != kFinds && ring.has_next()) {
      queries.ask(args, ring.next().tile);
    }
    if (pass == kFinds) {
      pass = kFills;
      n_steps = kStages - 1;
      if (first_block.is_of(ring.newest())) {  // it is there, or on its way, in stage 0
        loader.pass_first();
        ptx::cp_async_commit_group();  // in place of the step that would ask for it
        --n_steps;
      }
      continue;
    }
    if (pass == kComputes) {
      __syncthreads();  // the sums of all warps are visible
      write_piece(args, ring.current(), share.each, abreast, sums_in(stage),
                  reinterpret_cast<uint32_t*>(shared_memory + kConfig.flag_offset()));
      if (!ring.has_next()) break;
    }
    if (kConfig.is_wide()) {
      queries.store(smem);
    } else if (pass == kFills) {
      ptx::cp_async_wait_group<kStages - 1>();  // queries have come, keys may not
    } else if (n_steps_since >= kStages - 1) {
      ptx::cp_async_wait_group<kStages - 2>();  // they have, with the piece's first block
    } else {
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<0>();  // they have, and all keys before them
    }
    pass = kComputes;
    ring.advance();
    const Piece<kConfig>& piece = ring.current();
    __syncthreads();  // Q is visible; the sums of the piece before were read
    q.prologue(Lane(smem + warp_row * Mm::Tile::kRowBytes, lane, MatrixOrder::kRowsFirst));
    if (!kConfig.is_wide()) {
      __syncthreads();  // Q is read: the next may take its place
      has_copied = false;
    }
    whole = piece.seen_by_all();
    idle = warp_row >= piece.tile.n_rows;
    key = piece.keys.begin;
    n_steps = max(1, (piece.keys.end - key + kConfig.B_c - 1) / kConfig.B_c);
    softmax = sm80::OnlineSoftmax<1, true>(args.softmax_scale);
    Mm::clear(o);
  }
  ptx::cp_async_wait_group<0>();  // copies end before the thread block
}

}  // namespace flash::sm80_serve
