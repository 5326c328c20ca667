// Attention that serves: sequences of any lengths, packed, padded or in the pages of a cache, with
// windows, soft caps and sinks, for long prompts as for single new tokens. For sm_80 and later:
// cp.async, ldmatrix, mma.sync m16n8k16, online softmax in fp32. Three kernels:
//
//   kAppend   Writes new keys and values to the cache, and rotates, where that is asked for.
//   kServe    A thread block takes a tile of rows and a part (split) of the keys that they see.
//             Each warp has 16 rows; warps that are left over share the keys of every block, and
//             each has a softmax of its own until the end.
//   kCombine  Merges the splits, where there are several.
//
// What a call asks for, but for the element type and the head dimension, is decided at run time,
// outside of the inner loop or by one uniform branch a block.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/core/variant.h"
#include "flash/ptx/memory.cuh"
#include "flash/sm80/forward/matmuls.cuh"
#include "flash/sm80/forward/softmax.cuh"
#include "flash/sm80_serve/append.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/keys.cuh"
#include "flash/sm80_serve/rows.cuh"
#include "flash/sm80_serve/scores.cuh"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

// Copies the tile's queries to the beginning of shared memory; rows that do not exist become zeros.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void load_queries(const ServeArgs& args, const Tile<kConfig>& tile, uint32_t smem) {
  using Shared = SharedTile<kConfig.d_head, true>;
  const int chunk = static_cast<int>(threadIdx.x) % Shared::kChunksPerRow;
  for (int r = static_cast<int>(threadIdx.x) / Shared::kChunksPerRow; r < kConfig.B_r;
       r += kConfig.n_threads() / Shared::kChunksPerRow) {
    const bool exists = r < tile.n_rows && chunk * 8 < args.d_head;
    int64_t element = 0;
    if (exists) {
      const int64_t row =
          args.cu_seqlens_q == nullptr ? tile.query(r) : tile.first_query + tile.query(r);
      element = tile.batch * args.q_stride_batch + row * args.q_stride_seq +
                tile.head(r) * args.q_stride_head + chunk * 8;
    }
    ptx::cp_async_16_zero_fill<0>(
        smem + Shared::offset(r, chunk),
        static_cast<const char*>(args.q) + element * bytes_of(kConfig.dtype), exists ? 16 : 0);
  }
}

// Lets warps that read each other's keys wait for each other.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void sync_readers() {
  if constexpr (kConfig.row_warps() > 1) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// What a warp has at the end: sums of its 16 rows over its keys, and their log-sum-exps, in shared
// memory, of which this says where.
template <AmpereServeKernelConfig kConfig>
struct Sums {
  float* sums;  // of all warps
  float* lses;

  FLASH_DEVICE explicit Sums(char* shared_memory)
      : sums(reinterpret_cast<float*>(shared_memory)),
        lses(sums + kConfig.key_warps() * kConfig.B_r * kConfig.sum_floats()) {}

  FLASH_DEVICE float* sum(int key_warp, int row, int column) const {
    return sums + (key_warp * kConfig.B_r + row) * kConfig.sum_floats() + column;
  }
  FLASH_DEVICE float* lse(int key_warp, int row) const {
    return lses + key_warp * kConfig.B_r + row;
  }

  template <typename Mm, typename Softmax>
  FLASH_DEVICE void store(const typename Mm::Output& o, Softmax& softmax, int warp,
                          int lane) const {
    float inverse[1][2];
    float log_sum_exp[1][2];
    softmax.finish(inverse, log_sum_exp);
    const int key_warp = warp / kConfig.row_warps();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp % kConfig.row_warps() * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int n = 0; n < 2 * Mm::kDTiles; ++n) {
        *reinterpret_cast<float2*>(sum(key_warp, row, n * 8 + lane % 4 * 2)) = {
            o[0][n][2 * half] * inverse[0][half], o[0][n][2 * half + 1] * inverse[0][half]};
      }
      if (lane % 4 == 0) *lse(key_warp, row) = log_sum_exp[0][half];
    }
  }
};

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void attend(const ServeArgs& args) {
  using Mm = sm80::Matmuls<kConfig.matmuls()>;
  using Lane = typename Mm::Lane;
  constexpr int kStages = kConfig.n_stages;
  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x;
  const int lane = thread % AmpereServeKernelConfig::kWarpSize;
  const int warp = thread / AmpereServeKernelConfig::kWarpSize;
  const int warp_row = warp % kConfig.row_warps() * 16;

  const Tile<kConfig> tile(args, blockIdx.x, lane);
  if (tile.n_rows == 0) return;
  const KeyBlocks<kConfig.B_c> all(tile.rule, tile.query(0), tile.query(tile.n_rows - 1));
  const int share = (all.end - all.begin + args.n_splits - 1) / args.n_splits;
  const int begin = min(all.begin + tile.split * share, all.end);
  const int end = min(begin + share, all.end);

  KeyStream<kConfig> stream(args, tile, all.keys, smem + kConfig.q_bytes(), warp, lane);
  load_queries(args, tile, smem);
  stream.look_up(begin);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {  // Q travels with the first block
    if (begin + stage < end) stream.issue(stage);
    ptx::cp_async_commit_group();
    stream.look_up(begin + stage + 1);
  }

  ptx::cp_async_wait_group<kStages - 2>();
  __syncthreads();  // Q is visible
  typename Mm::QOperand q;
  q.prologue(Lane(smem + warp_row * Mm::Tile::kRowBytes, lane, MatrixOrder::kRowsFirst));

  const ScoreRules<kConfig> rules(args, tile, warp_row, lane);
  sm80::OnlineSoftmax<1, true> softmax(args.softmax_scale);
  typename Mm::Output o;
  Mm::clear(o);
  const int first_column = warp / kConfig.row_warps() * kConfig.slice_keys();
  const bool idle = warp_row >= tile.n_rows;  // it copies keys for the others
  int stage = kStages - 1;
  for (int block = begin; block < end; ++block) {
    const int free_stage = stage;
    stage = stage == kStages - 1 ? 0 : stage + 1;
    ptx::cp_async_wait_group<kStages - 2>();
    sync_readers<kConfig>();  // this block is visible; every warp has read the one before
    if (block + kStages - 1 < end) stream.issue(free_stage);
    ptx::cp_async_commit_group();
    stream.look_up(block + kStages);
    if (idle) continue;

    // The matmuls' tile offsets count from where Q would lie before the slice.
    const uint32_t slice =
        stream.slice + stage * kConfig.stage_bytes() - static_cast<uint32_t>(Mm::kKOffset);
    typename Mm::Scores s;
    Mm::scores(s, q, Lane(slice, lane, MatrixOrder::kRowsFirst),
               Lane(slice, lane, MatrixOrder::kColumnsFirst));
    if (args.softcap != 0.0f) rules.cap_scores(s[0]);
    if (!all.is_whole(block)) rules.hide(s[0], block * kConfig.B_c + first_column);
    // As if all blocks so far were one: their number would not fit the registers.
    softmax.template update</*kFirst=*/false, /*kMasked=*/true>(s, o, /*n_before=*/1);
    Mm::accumulate(o, s, Lane(slice, lane, MatrixOrder::kRowsFirst));
  }

  __syncthreads();  // every warp has read its last block
  const Sums<kConfig> sums(shared_memory);
  sums.template store<Mm>(o, softmax, warp, lane);
  __syncthreads();  // the sums of all warps are visible
  const auto lse_of = [&](int key_warp, int r) { return *sums.lse(key_warp, r); };
  const auto sum_of = [&](int key_warp, int r, int column) {
    return *reinterpret_cast<const float4*>(sums.sum(key_warp, r, column));
  };
  if (args.n_splits > 1) {
    write_rows<kConfig, /*kPartial=*/true>(args, tile, kConfig.key_warps(), lse_of, sum_of);
  } else {
    write_rows<kConfig, /*kPartial=*/false>(args, tile, kConfig.key_warps(), lse_of, sum_of);
  }
}

template <AmpereServeKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void serve(const ServeArgs& args) {
  if constexpr (kVariant == Variant::kAppend) {
    append<kConfig>(args);
  } else if constexpr (kVariant == Variant::kCombine) {
    combine<kConfig>(args);
  } else {
    attend<kConfig>(args);
  }
}

}  // namespace flash::sm80_serve
