// Attention with the latent cache of MLA (multi-head latent attention: DeepSeek-V2,
// https://arxiv.org/abs/2405.04434), its projections absorbed by queries and output: all query
// heads read one KV head, whose values are the first elements of its keys. For sm_80 and later:
// cp.async, ldmatrix, mma.sync m16n8k16, online softmax in fp32. Three kernels:
//
//   kAppend   As of the family's other kernels.
//   kServe    The thread blocks share the keys of the whole call (sm80_serve/shares.cuh), or, where
//             the number of splits is given, each has one of a tile (split.cuh). A block of keys is
//             in shared memory once, for both matmuls.
//   kCombine  As of the family's other kernels: merges the splits.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/core/variant.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/append.cuh"
#include "flash/sm80_serve/decode.cuh"
#include "flash/sm80_serve/parts.cuh"
#include "flash/sm80_serve/piece_ring.cuh"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve/shares.cuh"
#include "flash/sm80_serve_mla/config.h"
#include "flash/sm80_serve_mla/epilogue.cuh"
#include "flash/sm80_serve_mla/keys.cuh"
#include "flash/sm80_serve_mla/matmuls.cuh"
#include "flash/sm80_serve_mla/parked.cuh"
#include "flash/sm80_serve_mla/place.cuh"
#include "flash/sm80_serve_mla/queries.cuh"
#include "flash/sm80_serve_mla/softmax.cuh"
#include "flash/sm80_serve_mla/split.cuh"

namespace flash::sm80_serve_mla {

// Finds what the thread block computes, and in shares of how many units; false: it has nothing to
// do.
template <AmpereMlaKernelConfig kConfig>
FLASH_DEVICE bool find_pieces(const ServeArgs& args, int lane, ParkedPieces<kConfig>& pieces,
                              sm80_serve::UnitCount& share_units,
                              const sm80_serve::Abreast& abreast = {}) {
  constexpr auto kServing = kConfig.serving();
  if (is_split(args)) {
    const Split<kConfig> split(args, lane);
    if (split.tile.n_rows == 0) return false;
    if (split.begin == split.end) {
      split.leave_nothing(args);
      return false;
    }
    pieces = sm80_serve::Pieces<kServing>(split.begin, split.end, split.tile.batch, 0);
    share_units = ~sm80_serve::UnitCount{0};  // it has no parts
    return true;
  }
  const sm80_serve::Share<kServing> share(args, lane, {}, abreast);
  pieces = sm80_serve::Pieces<kServing>(share);
  share_units = share.each;
  return share.begin != share.end;
}

template <AmpereMlaKernelConfig kConfig>
FLASH_DEVICE void decode(const ServeArgs& args) {
  constexpr auto kServing = kConfig.serving();
  constexpr int kStages = kConfig.n_stages;
  using Mm = LatentMatmuls<kConfig>;
  using Piece = sm80_serve::Piece<kServing>;
  extern __shared__ __align__(128) char shared_memory[];
  const Place<kConfig> at = {shared_memory};

  sm80_serve::UnitCount share_units;
  ParkedPieces<kConfig> pieces(&at.state().pieces, at.lane);
  if (!find_pieces<kConfig>(args, at.lane, pieces, share_units)) return;
  sm80_serve::PieceRing<kServing> ring(at.pieces(), at.warp, at.lane);
  sm80_serve::BlockLoader<kServing, LatentStream<kConfig>, ParkedPieces<kConfig>> loader(
      LatentStream<kConfig>(args, at.stage(0), at.warp, at.lane), pieces, ring);
  int stage = kStages - 1;  // the one that was read last
  // The first call looks the first block up, of which the ring has the piece then.
#pragma unroll 1
  for (int i = -1; i < kStages - 1; ++i) loader.issue(i);
  for (; ring.has_next(); ring.advance()) {
    const Piece* const parked = &ring.next();
    LatentQueries<kConfig> rows(args, parked->tile, at.warp, at.lane);
    rows.store(at.queries(stage));
    __syncthreads();  // Q is visible
    const typename Mm::Queries queries(at.queries(stage), at);
    const KeyRange whole = parked->seen_by_all();
    LatentSoftmax<kConfig> softmax(args.softmax_scale, at.stats(), at.warp, at.lane);
    typename Mm::Output o = {};
    int key = parked->keys.begin;
    do {
      const int free_stage = stage;
      stage = stage == kStages - 1 ? 0 : stage + 1;
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();  // this block is visible; every warp has read the one before, and its
                        // weights
      loader.issue(free_stage);

      typename Mm::Scores s;
      const uint32_t block = at.stage(stage);
      Mm::scores(s, queries, block, at);
      const bool hides = key < whole.begin || key + kConfig.B_c > whole.end;
      if (hides || args.softcap != 0.0f) {
        const sm80_serve::ScoreRules<kServing> rules(args, parked->tile, parked->keys, at.warp_row,
                                                     at.lane);
        if (args.softcap != 0.0f) rules.cap_scores(s);
        if (hides) rules.hide(s, key + at.first_column);
      }
      softmax.tell_maxima(s);
      __syncthreads();  // all maxima are visible
      softmax.update(s, o);
      softmax.tell_weights(s, at.weights());
      __syncthreads();  // all weights are visible; every warp has read the maxima
      Mm::accumulate(o, block, at);
    } while ((key += kConfig.B_c) < parked->keys.end);

    softmax.tell_sums();
    __syncthreads();  // all sums are visible; every warp has read its last block
    const sm80_serve::Parts<kServing> parts(args, *parked, share_units);
    store_rows<kConfig>(args, *parked, parts, o, softmax, at);
    if (!parked->is_whole && !is_split(args)) parts.arrive(at.flag());
  }
  ptx::cp_async_wait_group<0>();
}

template <AmpereMlaKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void serve(const ServeArgs& args) {
  if constexpr (kVariant == Variant::kAppend) {
    sm80_serve::append<kConfig.serving()>(args);
  } else if constexpr (kVariant == Variant::kCombine) {
    sm80_serve::combine<kConfig.serving()>(args);
  } else {
    decode<kConfig>(args);
  }
}

}  // namespace flash::sm80_serve_mla
