// Launch arguments of every forward kernel: a plain record that is passed by value.
//
// Python packs the same bytes (py/flash_helpers/forward_args.py, compared by
// tests/config/test_cpp_contracts.py), so the GPU and the emulator receive identical arguments.
#pragma once

#include <cstdint>

namespace flash {

struct ForwardArgs {
  const void* q;  // [batch, seqlen_q, n_heads_q, d_head], 16-byte aligned
  const void* k;  // [batch, seqlen_k, n_heads_kv, d_head], 16-byte aligned
  const void* v;  // [batch, seqlen_k, n_heads_kv, d_head], 16-byte aligned
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
};

static_assert(sizeof(ForwardArgs) == 5 * 8 + 12 * 8 + 6 * 4,
              "no padding: Python packs these bytes");

}  // namespace flash
