// RowStats: the first kernel of every family's backward pass.
//
// dS = P * (dO V^T - dot), where dot = sum(dO * O) of the row: the sum over keys that the softmax's
// derivative needs, from what the forward pass has left. It is taken from the stored, rounded O.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/tile/row_stats.h"
#include "flash/tile/rows.cuh"

namespace flash {

// Sum of the products of the elements of two rows that this lane reads: every lanes_of_row-th chunk
// of 8 elements, in a fixed order. kAtOnce: so many chunks are on their way together.
template <DType kDType, int kDHead, int kAtOnce = kDHead / 8 / lanes_of_row(kDHead)>
FLASH_DEVICE float dot_of_lane(const char* a, const char* b, int lane) {
  constexpr int kLanes = lanes_of_row(kDHead);
  static_assert(kDHead % (8 * kLanes) == 0);
  float sum = 0.0f;
#pragma unroll kAtOnce
  for (int i = 0; i < kDHead / 8 / kLanes; ++i) {
    const int byte = (i * kLanes + lane) * 16;
    const ptx::Vector16 left = ptx::ld_global_16(a + byte);
    const ptx::Vector16 right = ptx::ld_global_16(b + byte);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const ptx::Pair x = ptx::unpack<kDType>(left.word[word]);
      const ptx::Pair y = ptx::unpack<kDType>(right.word[word]);
      sum = fmaf(x.low, y.low, sum);
      sum = fmaf(x.high, y.high, sum);
    }
  }
  return sum;
}

// At `stats_row` of all, those of a row that has `lse_row` among the log-sum-exps.
FLASH_DEVICE void store_row_stats(const BackwardArgs& args, int64_t lse_row, float lse, float dot,
                                  int64_t stats_row) {
  const bool sees_keys = lse != kNegativeInfinity;
  if (sees_keys && args.d_lse != nullptr) dot -= args.d_lse[lse_row];
  reinterpret_cast<RowStats*>(args.row_stats)[stats_row] = {
      .lse_log2 = sees_keys ? lse * kLog2e : -kNegativeInfinity, .dot = dot};
}

// Adds up what the lanes have that share a row.
template <int kDHead>
FLASH_DEVICE float sum_of_lanes(float sum) {
#pragma unroll
  for (int distance = lanes_of_row(kDHead) / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  return sum;
}

// Writes the RowStats of a query row, by the lanes that share it: row `row` of its batch, if it
// exists, and `stats_row` of its head's n_rows RowStats.
template <DType kDType, int kDHead>
FLASH_DEVICE void write_stats_of_row(const BackwardArgs& args, unsigned batch_head, int row,
                                     bool exists, int stats_row, unsigned n_rows, int lane) {
  const int64_t head = batch_head % static_cast<unsigned>(args.n_heads_q);
  const int64_t batch = batch_head / static_cast<unsigned>(args.n_heads_q);
  const int64_t lse_row = static_cast<int64_t>(batch_head) * args.seqlen_q + row;
  const float lse = exists ? args.lse[lse_row] : kNegativeInfinity;
  float dot = 0.0f;
  if (lse != kNegativeInfinity) {
    constexpr int64_t kBytes = bytes_of(kDType);
    const int64_t o =
        batch * args.o_stride_batch + row * args.o_stride_seq + head * args.o_stride_head;
    const int64_t d_o =
        batch * args.d_o_stride_batch + row * args.d_o_stride_seq + head * args.d_o_stride_head;
    dot = dot_of_lane<kDType, kDHead>(static_cast<const char*>(args.o) + o * kBytes,
                                      static_cast<const char*>(args.d_o) + d_o * kBytes, lane);
  }
  dot = sum_of_lanes<kDHead>(dot);
  if (lane != 0) return;
  store_row_stats(args, lse_row, lse, dot, static_cast<int64_t>(batch_head) * n_rows + stats_row);
}

// Writes the RowStats of the rows of one thread block. The grid is one-dimensional: blocks of
// kThreads / lanes_of_row rows fastest, then query heads, then the batch. kBlock: what a head's
// rows are filled up to.
template <DType kDType, int kDHead, int kThreads, int kBlock = kRowStatsBlock>
FLASH_DEVICE void write_row_stats(const BackwardArgs& args) {
  constexpr int kLanes = lanes_of_row(kDHead);
  constexpr int kRows = kThreads / kLanes;
  static_assert(kBlock % kRows == 0, "blocks end with the rows");
  const unsigned n_rows = static_cast<unsigned>(row_stats_rows(args.seqlen_q, kBlock));
  const unsigned n_blocks = n_rows / kRows;
  const unsigned batch_head = blockIdx.x / n_blocks;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int row = static_cast<int>(blockIdx.x % n_blocks * kRows + threadIdx.x / kLanes);

  write_stats_of_row<kDType, kDHead>(args, batch_head, row, row < args.seqlen_q, row, n_rows, lane);
}

}  // namespace flash
