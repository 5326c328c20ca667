// Backward attention for sm_80 and later: cp.async, ldmatrix, mma.sync m16n8k16. Three kernels:
//
//   kDots     RowStats of every query (flash/tile/row_dots.cuh).
//   kKeys     A thread block keeps rows of K and V while blocks of Q and dO pass by, of all query
//             heads that share them, and sums dV = P^T dO and dK = dS^T Q in registers.
//   kQueries  A thread block keeps rows of Q and dO while K and V pass by, and sums dQ = dS K.
//
// Scores are computed twice, seven matmuls in place of five: so nothing is added up in global
// memory, every sum has one order, and every gradient is bitwise repeatable. Own rows are the A
// operand of the scores, so that their accumulators are, rounded, the A operand of the sums: P and
// dS never leave the registers.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm80_bwd/config.h"
#include "flash/sm80_bwd/epilogue.cuh"
#include "flash/sm80_bwd/matmuls.cuh"
#include "flash/sm80_bwd/passing_blocks.cuh"
#include "flash/sm80_bwd/weights.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm80_bwd {

// What a thread block's own rows come from, and where their gradients go.
template <typename L>
struct OwnRows {
  Rows own1, own2, d_own1, d_own2;

  FLASH_DEVICE OwnRows(const typename L::Args& args, const typename L::Work& work) {
    const auto rows = [&](const void* tensor, int64_t batch, int64_t seq, int64_t head) {
      return rows_of(tensor, batch, seq, head, work.batch, work.head, work.first_row);
    };
    if constexpr (L::kOwnsKeys) {
      own1 = rows(args.k, args.k_stride_batch, args.k_stride_seq, args.k_stride_head);
      own2 = rows(args.v, args.v_stride_batch, args.v_stride_seq, args.v_stride_head);
      d_own1 = rows(args.d_k, args.d_k_stride_batch, args.d_k_stride_seq, args.d_k_stride_head);
      d_own2 = rows(args.d_v, args.d_v_stride_batch, args.d_v_stride_seq, args.d_v_stride_head);
    } else {
      own1 = rows(args.q, args.q_stride_batch, args.q_stride_seq, args.q_stride_head);
      own2 = rows(args.d_o, args.d_o_stride_batch, args.d_o_stride_seq, args.d_o_stride_head);
      d_own1 = rows(args.d_q, args.d_q_stride_batch, args.d_q_stride_seq, args.d_q_stride_head);
    }
  }
};

// kOfOwn1, kOfOwn2: of which of its rows the thread block sums gradients. Where those of K and of V
// do not fit the registers together, they are summed in turn.
template <AmpereBackwardKernelConfig kConfig, typename L, bool kOfOwn1 = true,
          bool kOfOwn2 = L::kOwnsKeys>
FLASH_DEVICE void gradients(const typename L::Args& args, const typename L::Work& work) {
  using Mm = Matmuls<kConfig.dtype, L>;
  using Lane = typename L::Lane;
  constexpr int kWarpSize = AmpereBackwardKernelConfig::kWarpSize;

  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t smem = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x;
  const int lane = thread % kWarpSize;
  const int warp_row = thread / kWarpSize * L::kRowsPerWarp;

  const OwnRows<L> own(args, work);
  const RowCopy<typename L::Tile, L::kThreads> copy(thread);
  PassingBlocks<L> passing(args, work, copy, smem);
  const int n_steps = work.n_steps();
  if (n_steps > 0) {  // else nothing is read, and the gradients are 0
    copy.template load<L::kRows>(smem + L::kOwn1, own.own1.first, own.own1.row_bytes, work.n_rows);
    copy.template load<L::kRows>(smem + L::kOwn2, own.own2.first, own.own2.row_bytes, work.n_rows);
    passing.issue(0);
    ptx::cp_async_commit_group();
  }

  const uint32_t warp_rows = smem + warp_row * L::Tile::kRowBytes;
  const Lane own1(warp_rows + L::kOwn1, lane, MatrixOrder::kRowsFirst);
  const Lane own2(warp_rows + L::kOwn2, lane, MatrixOrder::kRowsFirst);
  const float scale_log2 = args.softmax_scale * kLog2e;
  typename L::Result d_own1, d_own2;
  if constexpr (kOfOwn1) Mm::clear(d_own1);
  if constexpr (kOfOwn2) Mm::clear(d_own2);

  const int64_t of_head = head_stats(args, work.batch, work.head);
  const QueryStats<L> stats(
      reinterpret_cast<const RowStats*>(args.row_stats) + of_head + work.first_row + warp_row,
      work.n_rows - warp_row, smem, lane);
  Place place{work.begin, 0};
  for (int step = 0; step < n_steps; ++step) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // this block is visible; every warp has read the one before
    if (step + 1 < n_steps) passing.issue((step + 1) % AmpereBackwardKernelConfig::kStages);
    ptx::cp_async_commit_group();

    const int stage_offset = step % AmpereBackwardKernelConfig::kStages * L::kStageBytes;
    const uint32_t other1 = smem + stage_offset + L::kOther1;
    const uint32_t other2 = smem + stage_offset + L::kOther2;
    const int first_column = place.block * L::kColumns;
    place.advance(work);
    const typename L::Mask mask(args, work.first_row, first_column);

    typename L::Scores p, d_s;
    Mm::products(p, own1, Lane(other1, lane, MatrixOrder::kColumnsFirst));
    L::Calls::template cap<L>(args, p);
    stats.for_each(stage_offset, [&](int m, int n, int i, const RowStats& row) {
      p[m][n][i] = ptx::ex2(ptx::fma_rn(p[m][n][i], scale_log2, -row.lse_log2));
    });
    if (mask.hides_something) hide<L>(p, args, mask, warp_row + lane / 4, lane % 4 * 2);
    if constexpr (kOfOwn2) Mm::accumulate(d_own2, p, Lane(other2, lane, MatrixOrder::kRowsFirst));
    if constexpr (!kOfOwn1) continue;
    Mm::products(d_s, own2, Lane(other2, lane, MatrixOrder::kColumnsFirst));
    stats.for_each(stage_offset, [&](int m, int n, int i, const RowStats& row) {
      const float weight = p[m][n][i];
      const float d_score = weight * (d_s[m][n][i] - row.dot);
      // What belongs to a key that the query does not see may be infinite.
      d_s[m][n][i] = mask.hides_something && weight == 0.0f ? 0.0f : d_score;
    });
    L::Calls::template pass_cap<L>(args, p, stats, stage_offset, d_s);
    Mm::accumulate(d_own1, d_s, Lane(other1, lane, MatrixOrder::kRowsFirst));
  }

  const int n_rows = work.n_rows - warp_row;
  const auto write = [&](const typename L::Result& result, float factor, uint32_t tile, Rows rows,
                         const void* wanted) {
    if (wanted == nullptr) return;
    rows.first += warp_row * rows.row_bytes;
    write_rows<kConfig.dtype, L>(result, factor, warp_rows + tile, rows, n_rows, lane);
  };
  if constexpr (kOfOwn1) {
    write(d_own1, args.softmax_scale, L::kOwn1, own.d_own1, L::kOwnsKeys ? args.d_k : args.d_q);
  }
  if constexpr (kOfOwn2) write(d_own2, 1.0f, L::kOwn2, own.d_own2, args.d_v);
}

// All gradients of a thread block's rows.
template <AmpereBackwardKernelConfig kConfig, typename L>
FLASH_DEVICE void all_gradients(const typename L::Args& args, const typename L::Work& work) {
  if constexpr (L::kOwnsKeys && kConfig.sums_in_turn()) {
    if (args.d_v != nullptr) gradients<kConfig, L, false, true>(args, work);
    __syncthreads();  // the values' gradients are written; every warp has read the last block
    if (args.d_k != nullptr) gradients<kConfig, L, true, false>(args, work);
  } else {
    gradients<kConfig, L>(args, work);
  }
}

template <AmpereBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    write_row_stats<kConfig.dtype, kConfig.d_head, AmpereBackwardKernelConfig::kDotsThreads>(args);
  } else {
    using L = Layout<kConfig, kVariant>;
    all_gradients<kConfig, L>(args, typename L::Work(args, blockIdx.x));
  }
}

}  // namespace flash::sm80_bwd
