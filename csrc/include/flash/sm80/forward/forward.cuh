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
//
// Every configuration has two kernels (`Coverage`). One takes whole blocks and checks nothing. The
// other takes any lengths and the causal mask: only the block that comes first, the last of the
// sequence, can be short, and only the last few blocks need a mask, so the rest of the loop costs
// one comparison a block.
#pragma once

#include "flash/core/args.h"
#include "flash/sm80/config.h"
#include "flash/sm80/forward/block_copy.cuh"
#include "flash/sm80/forward/bounds.cuh"
#include "flash/sm80/forward/epilogue.cuh"
#include "flash/sm80/forward/matmuls.cuh"
#include "flash/sm80/forward/position.cuh"
#include "flash/sm80/forward/softmax.cuh"

namespace flash::sm80 {

// The K and V stream: pointers to the blocks to be loaded next, walking towards the first row.
template <FlashForwardKernelConfig kConfig, Coverage kCoverage>
struct KvStream {
  static constexpr bool kAnyLength = kCoverage == Coverage::kAnyLength;
  static constexpr int kKOffset = Matmuls<kConfig>::kKOffset;
  static constexpr int kVOffset = Matmuls<kConfig>::kVOffset;

  const BlockCopy<kConfig>& copy;
  const char* k;
  const char* v;
  int64_t k_row_bytes;
  int64_t v_row_bytes;
  int k_rows;  // that exist from the next block on; counted for the blocks that may be short
  int v_rows;

  FLASH_DEVICE KvStream(const BlockCopy<kConfig>& block_copy,
                        const BlockPosition<kConfig, kCoverage>& position,
                        const Bounds<kConfig, kCoverage>& bounds, const ForwardArgs& args)
      : copy(block_copy),
        k_row_bytes(args.k_stride_seq * kConfig.element_bytes()),
        v_row_bytes(args.v_stride_seq * kConfig.element_bytes()),
        k_rows(bounds.last_kv_rows(args)),
        v_rows(k_rows) {
    const int64_t last_row = bounds.last_kv_row(args);
    k = copy.source(position.k, k_row_bytes) + last_row * k_row_bytes;
    v = copy.source(position.v, v_row_bytes) + last_row * v_row_bytes;
  }

  // kMayBeShort: this may be the last block of the sequence, which is loaded first.
  template <bool kMayBeShort>
  FLASH_DEVICE void issue_k() {
    copy.template load<kConfig.B_c, kKOffset, kAnyLength && kMayBeShort>(k, k_row_bytes, k_rows);
    load_commit<kConfig>();
    k -= kConfig.B_c * k_row_bytes;
    k_rows = kConfig.B_c;
  }

  template <bool kMayBeShort>
  FLASH_DEVICE void issue_v() {
    copy.template load<kConfig.B_c, kVOffset, kAnyLength && kMayBeShort>(v, v_row_bytes, v_rows);
    load_commit<kConfig>();
    v -= kConfig.B_c * v_row_bytes;
    v_rows = kConfig.B_c;
  }
};

// Behind the loop: normalises the warp's rows and writes them and their log-sum-exp.
template <FlashForwardKernelConfig kConfig, Coverage kCoverage, typename Softmax>
FLASH_DEVICE void finish(typename Matmuls<kConfig>::Output& o, Softmax& softmax,
                         const ForwardArgs& args, const BlockPosition<kConfig, kCoverage>& position,
                         uint32_t smem, int thread) {
  using Mm = Matmuls<kConfig>;
  using End = Epilogue<kConfig>;
  constexpr bool kAnyLength = kCoverage == Coverage::kAnyLength;
  const int lane = thread % FlashForwardKernelConfig::kWarpSize;
  const int warp_row = thread / FlashForwardKernelConfig::kWarpSize * kConfig.rows_per_warp();
  const uint32_t warp_rows = smem + warp_row * Mm::Tile::kRowBytes;

  float inverse[Mm::kMTiles][2];
  float log_sum_exp[Mm::kMTiles][2];
  softmax.finish(inverse, log_sum_exp);
  if constexpr (kAnyLength) {
    clear_blind_rows<kConfig>(o, inverse, args, position.first_row);
  }

  End::stage(o, inverse, warp_rows, lane);
  __syncwarp();  // the warp's rows are staged before other lanes read them
  const int n_rows = args.seqlen_q - position.first_row - warp_row;  // of the warp that exist
  const int64_t o_row_bytes = args.o_stride_seq * kConfig.element_bytes();
  End::template store<kAnyLength>(warp_rows, position.o + warp_row * o_row_bytes, o_row_bytes, lane,
                                  n_rows);
  if (position.lse != nullptr) {
    End::template store_lse<kAnyLength>(log_sum_exp, position.lse + warp_row, lane, n_rows);
  }
}

template <FlashForwardKernelConfig kConfig, Coverage kCoverage = Coverage::kWholeBlocks>
FLASH_DEVICE void forward(const ForwardArgs& args) {
  using Mm = Matmuls<kConfig>;
  using Lane = typename Mm::Lane;
  static_assert(kConfig.d_head == 64 || kConfig.d_head == 128, "d_head must be 64 or 128");
  static_assert(kConfig.B_r % (16 * kConfig.n_warps) == 0, "a warp owns whole 16-row tiles");
  static_assert(kConfig.B_c % 16 == 0, "a KV block is whole k-tiles of the second matmul");
  constexpr bool kAnyLength = kCoverage == Coverage::kAnyLength;

  // With 32 rows a warp, output and scores take 192 of 255 registers: swizzled addresses that stay
  // in registers across blocks are what spills.
  constexpr bool kAddressesInTheWay = kConfig.rows_per_warp() > 16;

  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x;
  const int lane = thread % FlashForwardKernelConfig::kWarpSize;
  const int warp_row = thread / FlashForwardKernelConfig::kWarpSize * kConfig.rows_per_warp();
  const uint32_t warp_rows = smem + warp_row * Mm::Tile::kRowBytes;

  const BlockPosition<kConfig, kCoverage> position(args, blockIdx.x);
  const Bounds<kConfig, kCoverage> bounds(args, position.first_row);
  if constexpr (kAnyLength) {
    if (bounds.n_blocks == 0) {
      const int64_t o_row_bytes = args.o_stride_seq * kConfig.element_bytes();
      float* const lse = position.lse == nullptr ? nullptr : position.lse + warp_row;
      Epilogue<kConfig>::store_blind(position.o + warp_row * o_row_bytes, o_row_bytes, lse, lane,
                                     bounds.q_rows - warp_row);
      return;
    }
  }
  const BlockCopy<kConfig> copy(smem, thread);
  KvStream<kConfig, kCoverage> kv(copy, position, bounds, args);

  // Prologue: Q travels in the group of the first K block, V behind it.
  const int64_t q_row_bytes = args.q_stride_seq * kConfig.element_bytes();
  copy.template load<kConfig.B_r, 0, kAnyLength>(copy.source(position.q, q_row_bytes), q_row_bytes,
                                                 bounds.q_rows);
  kv.template issue_k<true>();
  if constexpr (kConfig.eager_load_blocks) {
    kv.template issue_v<true>();
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

  // One KV block whose K is visible at entry; leaves the next K visible. `remaining`: how many
  // blocks there are with this one.
  const auto block = [&](auto first, int remaining) {
    const bool has_next = remaining > 1;
    constexpr bool kFirst = first;
    // The first block that is walked is the last of the sequence. If no block is peeled, every one
    // may be it.
    [[maybe_unused]] constexpr bool kMayBeLast = kFirst || !kConfig.optimized_softmax;
    if constexpr (kAddressesInTheWay) {
      q_lane.forget();
      k_lane.forget();
      v_lane.forget();
    }
    typename Mm::Scores s;
    Mm::scores(s, q, q_lane, k_lane);

    const auto update = [&] {
      if constexpr (kAnyLength) {
        if (remaining > bounds.n_whole) {
          mask_scores<kConfig, kMayBeLast>(s, args, bounds.q_row, (remaining - 1) * kConfig.B_c);
        }
      }
      softmax.template update<kFirst, kAnyLength>(s, o, bounds.n_blocks - remaining);
    };
    if constexpr (kConfig.eager_load_blocks) {
      load_wait<kConfig, 0>();
      __syncthreads();  // V is visible; every warp has read K, so its buffer is free
      if (has_next) kv.template issue_k<false>();
      update();
    } else {
      update();
      kv.template issue_v<kMayBeLast>();  // V's buffer is free since the barrier that made K
                                          // visible
      load_wait<kConfig, 0>();
      __syncthreads();  // V is visible
    }

    Mm::accumulate(o, s, v_lane);

    if (!has_next) return;
    if constexpr (kConfig.eager_load_blocks) {
      load_wait<kConfig, 0>();
      __syncthreads();  // the next K is visible; every warp has read V, so its buffer is free
      kv.template issue_v<false>();
    } else {
      kv.template issue_k<false>();  // the K buffer is free since the barrier that made V visible
      load_wait<kConfig, 0>();
      __syncthreads();  // the next K is visible
    }
  };

  int remaining = bounds.n_blocks;
  if constexpr (kConfig.optimized_softmax) {
    block(Int<1>{}, remaining);
    --remaining;
  }
  for (; remaining > 0; --remaining) block(Int<0>{}, remaining);

  if constexpr (!kAnyLength) {
    finish<kConfig, kCoverage>(o, softmax, args, position, smem, thread);
  } else {
    // Places are computed anew: beside the bounds, they do not fit the registers in the loop.
    uint32_t block_index = blockIdx.x;
    uint32_t thread_index = threadIdx.x;
    ptx::forget(block_index);
    ptx::forget(thread_index);
    const BlockPosition<kConfig, kCoverage> same_position(args, block_index);
    finish<kConfig, kCoverage>(o, softmax, args, same_position, smem,
                               static_cast<int>(thread_index));
  }
}

}  // namespace flash::sm80
