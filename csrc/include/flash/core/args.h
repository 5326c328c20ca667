// What callers pass to the launch of any forward kernel: a plain record. A family's kernels take it
// as it is, or a record of their own (ForwardKernelArgs) that the launcher makes from it.
//
// Python packs the same bytes (py/flash_helpers/kernels/forward_args.py, compared by
// tests/config/test_cpp_contracts.py), so the GPU and the emulator receive identical arguments.
#pragma once

#include <cstdint>

namespace flash {

struct ForwardArgs {
  const void* q;  // [batch, seqlen_q, n_heads_q, d_head], 16-byte aligned
  const void* k;  // [batch, seqlen_k, n_heads_kv, d_head], 16-byte aligned; any if seqlen_k is 0
  const void* v;  // as k
  void* o;        // [batch, seqlen_q, n_heads_q, d_head], 16-byte aligned
  float* lse;     // [batch, n_heads_q, seqlen_q], contiguous, natural log; null: not written

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

  int32_t batch;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t n_heads_q;
  int32_t n_heads_kv;  // divides n_heads_q: query head h reads KV head h / (n_heads_q / n_heads_kv)
  float softmax_scale;  // multiplies q.k before the softmax
  int32_t causal;       // not 0: query i sees only keys j <= i + seqlen_k - seqlen_q
  int32_t reserved;     // 0: the record's size is a multiple of its alignment without padding
};

// The longest sequence. A kernel counts to the end of the last block, which must not overflow.
constexpr int32_t kMaxSeqlen = 2147483647 - 1024;

static_assert(sizeof(ForwardArgs) == 5 * 8 + 12 * 8 + 8 * 4,
              "no padding: Python packs these bytes");

}  // namespace flash
