// Forward attention for sm_80 and later: cp.async, ldmatrix, mma.sync m16n8k16, online softmax in
// fp32.
//
// A thread block computes B_r query rows of one head; each warp owns B_r / n_warps of them from the
// first load to the last store. K and V pass by in blocks of B_c rows, last block first, through
// one shared buffer each, with two barriers a block. Which loads overlap with what is the
// configuration's business:
//
//   eager   K[i+1] is issued when the last warp has read K[i] (it lands during softmax and P V),
//           V[i+1] when the last warp has read V[i] (it lands during Q K^T).
//   lazy    each block is loaded when it is needed and waited for on the spot.
#pragma once

#include "flash/attention/block_position.cuh"
#include "flash/attention/epilogue.cuh"
#include "flash/attention/matmuls.cuh"
#include "flash/attention/online_softmax.cuh"
#include "flash/core/forward_args.h"
#include "flash/core/forward_config.h"
#include "flash/tile/block_copy.cuh"

namespace flash::sm80 {

// The K and V stream: pointers to the blocks to be loaded next, walking towards the first row.
template <FlashForwardKernelConfig kConfig>
struct KvStream {
  static constexpr int kKOffset = Matmuls<kConfig>::kKOffset;
  static constexpr int kVOffset = Matmuls<kConfig>::kVOffset;

  const BlockCopy<kConfig>& copy;
  const char* k;
  const char* v;
  int64_t k_row_bytes;
  int64_t v_row_bytes;

  FLASH_DEVICE KvStream(const BlockCopy<kConfig>& block_copy,
                        const BlockPosition<kConfig>& position, const ForwardArgs& args)
      : copy(block_copy),
        k_row_bytes(args.k_stride_seq * FlashForwardKernelConfig::kElementBytes),
        v_row_bytes(args.v_stride_seq * FlashForwardKernelConfig::kElementBytes) {
    const int64_t last_block = args.seqlen_k - kConfig.B_c;
    k = copy.source(position.k, k_row_bytes) + last_block * k_row_bytes;
    v = copy.source(position.v, v_row_bytes) + last_block * v_row_bytes;
  }

  FLASH_DEVICE void issue_k() {
    copy.template load<kConfig.B_c, kKOffset>(k, k_row_bytes);
    load_commit<kConfig>();
    k -= kConfig.B_c * k_row_bytes;
  }

  FLASH_DEVICE void issue_v() {
    copy.template load<kConfig.B_c, kVOffset>(v, v_row_bytes);
    load_commit<kConfig>();
    v -= kConfig.B_c * v_row_bytes;
  }
};

template <FlashForwardKernelConfig kConfig>
FLASH_DEVICE void forward(const ForwardArgs& args) {
  using Mm = Matmuls<kConfig>;
  using Lane = typename Mm::Lane;
  static_assert(kConfig.d_head == 64 || kConfig.d_head == 128, "d_head must be 64 or 128");
  static_assert(kConfig.B_r % (16 * kConfig.n_warps) == 0, "a warp owns whole 16-row tiles");
  static_assert(kConfig.B_c % 16 == 0, "a KV block is whole k-tiles of the second matmul");

  // With 32 rows a warp, output and scores take 192 of 255 registers: swizzled addresses that stay
  // in registers across blocks are what spills.
  constexpr bool kAddressesInTheWay = kConfig.rows_per_warp() > 16;

  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x;
  const int lane = thread % FlashForwardKernelConfig::kWarpSize;
  const int warp_row = thread / FlashForwardKernelConfig::kWarpSize * kConfig.rows_per_warp();
  const uint32_t warp_rows = smem + warp_row * Mm::Tile::kRowBytes;

  const BlockPosition<kConfig> position(args);
  const BlockCopy<kConfig> copy(smem, thread);
  KvStream<kConfig> kv(copy, position, args);

  // Prologue: Q travels in the group of the first K block, V behind it.
  const int64_t q_row_bytes = args.q_stride_seq * FlashForwardKernelConfig::kElementBytes;
  copy.template load<kConfig.B_r, 0>(copy.source(position.q, q_row_bytes), q_row_bytes);
  kv.issue_k();
  if constexpr (kConfig.eager_load_blocks) {
    kv.issue_v();
    load_wait<kConfig, 1>();
  } else {
    load_wait<kConfig, 0>();
  }
  __syncthreads();  // Q and the first K block are visible to every warp

  Lane q_lane(warp_rows, lane, MatrixOrder::kRowsFirst);
  Lane k_lane(smem, lane, MatrixOrder::kColumnsFirst);
  Lane v_lane(smem, lane, MatrixOrder::kRowsFirst);
  typename Mm::QOperand q;
  if constexpr (Mm::QSchedule::kWhole) q.prologue(q_lane);

  OnlineSoftmax<Mm::kMTiles, kConfig.optimized_softmax> softmax(args.softmax_scale);
  typename Mm::Output o;
  Mm::clear(o);

  // One KV block whose K is visible at entry; leaves the next K visible.
  const auto block = [&](auto first, bool has_next) {
    if constexpr (kAddressesInTheWay) {
      q_lane.forget();
      k_lane.forget();
      v_lane.forget();
    }
    typename Mm::Scores s;
    Mm::scores(s, q, q_lane, k_lane);

    if constexpr (kConfig.eager_load_blocks) {
      load_wait<kConfig, 0>();
      __syncthreads();  // V is visible; every warp has read K, so its buffer is free
      if (has_next) kv.issue_k();
      softmax.template update<first>(s, o);
    } else {
      softmax.template update<first>(s, o);
      kv.issue_v();  // the V buffer is free since the barrier that made this K visible
      load_wait<kConfig, 0>();
      __syncthreads();  // V is visible
    }

    Mm::accumulate(o, s, v_lane);

    if (!has_next) return;
    if constexpr (kConfig.eager_load_blocks) {
      load_wait<kConfig, 0>();
      __syncthreads();  // the next K is visible; every warp has read V, so its buffer is free
      kv.issue_v();
    } else {
      kv.issue_k();  // the K buffer is free since the barrier that made V visible
      load_wait<kConfig, 0>();
      __syncthreads();  // the next K is visible
    }
  };

  int remaining = args.seqlen_k / kConfig.B_c;
  if constexpr (kConfig.optimized_softmax) {
    block(Int<1>{}, remaining > 1);
    --remaining;
  }
  for (; remaining > 0; --remaining) block(Int<0>{}, remaining > 1);

  float inverse[Mm::kMTiles][2];
  float log_sum_exp[Mm::kMTiles][2];
  softmax.finish(inverse, log_sum_exp);

  using End = Epilogue<kConfig>;
  End::stage(o, inverse, warp_rows, lane);
  __syncwarp();  // the warp's rows are staged before other lanes read them
  const int64_t o_row_bytes = args.o_stride_seq * FlashForwardKernelConfig::kElementBytes;
  End::store(warp_rows, position.o + warp_row * o_row_bytes, o_row_bytes, lane);
  if (position.lse != nullptr) End::store_lse(log_sum_exp, position.lse + warp_row, lane);
}

}  // namespace flash::sm80
