// What callers pass to the launch of the kernels of a backward pass, of any family: a plain record.
//
// Python packs the same bytes (py/flash_helpers/kernels/backward_args.py, compared by
// tests/config/test_cpp_contracts.py), so the GPU and the emulator receive identical arguments.
#pragma once

#include <cstdint>

namespace flash {

struct BackwardArgs {
  const void* q;       // [batch, seqlen_q, n_heads_q, d_head], 16-byte aligned, as all but lse
  const void* k;       // [batch, seqlen_k, n_heads_kv, d_head]; any if seqlen_k is 0
  const void* v;       // as k
  const void* o;       // the forward pass' output, shaped like q
  const void* d_o;     // its gradient
  const float* lse;    // the forward pass' [batch, n_heads_q, seqlen_q], contiguous, natural log
  const float* d_lse;  // its gradient, laid out alike; null: none
  void* d_q;           // the gradients that are wanted, shaped like q, k and v; null: not wanted
  void* d_k;
  void* d_v;
  float* row_stats;  // scratch memory: RowStats, row_stats_rows() for each query head and batch
  float* d_q_sums;   // of fused kernels, scratch memory: d_head for each of these rows

  // Strides in elements; the head dimension itself is contiguous. Multiples of 8 (16 bytes).
  int64_t q_stride_batch;
  int64_t q_stride_seq;
  int64_t q_stride_head;
  int64_t k_stride_batch;
  int64_t k_stride_seq;
  int64_t k_stride_head;
  int64_t v_stride_batch;
  int64_t v_stride_seq;
  int64_t v_stride_head;
  int64_t o_stride_batch;
  int64_t o_stride_seq;
  int64_t o_stride_head;
  int64_t d_o_stride_batch;
  int64_t d_o_stride_seq;
  int64_t d_o_stride_head;
  int64_t d_q_stride_batch;
  int64_t d_q_stride_seq;
  int64_t d_q_stride_head;
  int64_t d_k_stride_batch;
  int64_t d_k_stride_seq;
  int64_t d_k_stride_head;
  int64_t d_v_stride_batch;
  int64_t d_v_stride_seq;
  int64_t d_v_stride_head;

  int32_t batch;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t n_heads_q;
  int32_t n_heads_kv;  // divides n_heads_q: query head h reads KV head h / (n_heads_q / n_heads_kv)
  float softmax_scale;  // multiplies q.k before the softmax
  int32_t causal;       // not 0: query i sees only keys j <= i + seqlen_k - seqlen_q
  int32_t head_splits;  // by a launcher: thread blocks that share heads of the same keys; else 0

  // For families that serve alone, which read these in place of `causal`. With cu_seqlens sequences
  // lie one after the other: seqlen_q and seqlen_k are rows of all, strides of batches 0, and of
  // row_stats and lse there are as many as of one sequence of that length.
  const int32_t* cu_seqlens_q;  // as in ServeArgs, both or none
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  int32_t window_left;
  int32_t window_right;
  float softcap;
  int32_t reserved_too;  // 0
};

static_assert(sizeof(BackwardArgs) == 12 * 8 + 24 * 8 + 8 * 4 + 4 * 8 + 4 * 4,
              "no padding: Python packs these bytes");

// What the kernels know of a query row beside its elements. A head's rows are filled up to whole
// blocks, so that whoever reads a block needs no bounds. Aligned to be read and written at once.
struct alignas(8) RowStats {
  // log2 of the sum of exp(scale * q k^T): the softmax's weights are exp2(scale_log2 * s - this).
  // +inf for a row that sees no key or does not exist, whose weights are 0.
  float lse_log2;
  // sum(d_o * o) - d_lse: what is taken from the gradient of each weight. 0 for the rows above.
  float dot;
};

// The largest block of query rows that reads RowStats; a multiple of most others.
constexpr int kRowStatsBlock = 128;

// What a head's rows are filled up to, so that blocks of `columns` queries end with them, and those
// of the kernel that makes RowStats, of 32 rows at most.
constexpr int row_stats_block(int columns) {
  if (kRowStatsBlock % columns == 0) return kRowStatsBlock;
  int rows = columns;
  while (rows % 32 != 0) rows += columns;
  return rows;
}

// Rows with RowStats of one head.
constexpr int64_t row_stats_rows(int32_t seqlen_q, int block = kRowStatsBlock) {
  return (int64_t{seqlen_q} + block - 1) / block * block;
}

// The same of packed sequences, n_rows rows together, each of which begins with a whole block.
constexpr int64_t packed_stats_rows(int32_t n_rows, int32_t batch) {
  return (int64_t{n_rows} / kRowStatsBlock + batch) * kRowStatsBlock;
}

}  // namespace flash
