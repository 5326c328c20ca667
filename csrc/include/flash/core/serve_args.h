// What callers pass to the launch of the kernels that serve sequences of different lengths and
// caches, of any family: a plain record.
//
// Python packs the same bytes (py/flash_helpers/kernels/serve_args.py, compared by
// tests/config/test_cpp_contracts.py), so the GPU and the emulator receive identical arguments.
//
// Lengths, starts and tables are read on the device, so that a captured graph follows them. Keys
// lie in pages: row r of page p begins at p * k_stride_page + r * k_stride_seq. A cache is one page
// for each sequence, packed keys are one page of stride 0.
#pragma once

#include <cstdint>

namespace flash {

struct ServeArgs {
  const void* q;  // rows of n_heads_q heads of d_head elements, 16-byte aligned
  const void* k;  // pages of rows of n_heads_kv heads of d_head elements, 16-byte aligned
  const void* v;  // as k, with d_v elements
  void* o;        // as q, with d_v elements
  float* lse;     // natural logarithm, of every row and head; null: not written

  // Of batch + 1 numbers. Null: sequence b has seqlen_q rows from b * q_stride_batch on.
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;  // null: keys begin with their page
  // Of batch numbers. Null: as long as cu_seqlens, or the tensor, says.
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  const int32_t* leftpad_k;        // keys before it are not seen; null: 0
  const int32_t* cache_batch_idx;  // the page of each sequence; null: its own number
  const int32_t* block_table;      // the pages of each sequence; null: it has one
  const float* sinks;              // of n_heads_q numbers; null: none
  float* o_partial;    // scratch memory where n_splits > 1: n_splits * n_rows * n_heads_q rows of
  float* lse_partial;  // d_partial elements, and as many log-sum-exps
  // Where all thread blocks share the keys of the call, 4 * n_splits counts: zero between launches.
  // Such a launch has n_splits thread blocks, each of which leaves up to two tiles in o_partial and
  // has room for four in lse_partial.
  uint32_t* arrivals;

  // What is appended to the cache before, and rotated. seqused_k is how long sequences were.
  const void* q_new;  // with rotary_dim: what is rotated, to q
  const void* k_new;  // new rows of k and v
  const void* v_new;
  const int32_t* cu_seqlens_new;  // of batch + 1 numbers. Null: seqlen_new rows for each sequence
  const int32_t* rotary_seqlens;  // positions of the first new rows; null: seqused_k
  const void* rotary_cos;         // rotary_rows rows of rotary_dim / 2 elements
  const void* rotary_sin;

  // Strides in elements; the head dimension itself is contiguous. Multiples of 8 (16 bytes).
  int64_t q_stride_batch;  // 0 with cu_seqlens_q
  int64_t q_stride_seq;
  int64_t q_stride_head;
  int64_t k_stride_page;
  int64_t k_stride_seq;
  int64_t k_stride_head;
  int64_t v_stride_page;
  int64_t v_stride_seq;
  int64_t v_stride_head;
  int64_t o_stride_batch;
  int64_t o_stride_seq;
  int64_t o_stride_head;
  int64_t lse_stride_batch;  // any number; rows follow each other
  int64_t lse_stride_head;
  int64_t q_new_stride_batch;
  int64_t q_new_stride_seq;
  int64_t q_new_stride_head;
  int64_t k_new_stride_batch;  // 0 with cu_seqlens_new
  int64_t k_new_stride_seq;
  int64_t k_new_stride_head;
  int64_t v_new_stride_batch;
  int64_t v_new_stride_seq;
  int64_t v_new_stride_head;
  int64_t table_stride;  // any number, from a sequence's first page to the next sequence's

  int32_t batch;
  int32_t n_rows;     // of q, of all sequences together
  int32_t seqlen_q;   // without cu_seqlens_q: rows of a sequence
  int32_t seqlen_k;   // the most keys that a sequence can have, or that there are
  int32_t page_size;  // keys of a page of the block_table
  int32_t n_heads_q;  // a multiple of n_heads_kv, as in ForwardArgs
  int32_t n_heads_kv;
  int32_t d_head;
  int32_t d_v;
  int32_t n_splits;      // parts that a sequence's keys are cut into, one thread block each; with
                         // arrivals: thread blocks
  int32_t window_left;   // a query at key a sees keys from a - window_left to a + window_right;
  int32_t window_right;  // kNoWindow: all on that side
  int32_t n_new;         // new rows of k and v, of all sequences together; 0: none
  int32_t seqlen_new;    // without cu_seqlens_new: of a sequence
  int32_t rotary_dim;    // elements of a head that are rotated; 0: none
  int32_t rotary_rows;
  int32_t rotary_interleaved;  // not 0: neighbours are rotated, else elements rotary_dim / 2 apart
  int32_t rotary_each_query;  // not 0: each query for a position of its own, else all for the first
  float softmax_scale;        // multiplies q.k
  float softcap;              // not 0: scores are softcap * tanh(softmax_scale * q.k / softcap)

  // Of a latent cache: what is multiplied with v, as q with k; q.k is the sum of both. Rows of
  // n_heads_q heads of d_v elements; null: there is none.
  const void* qv;
  int64_t qv_stride_batch;
  int64_t qv_stride_seq;
  int64_t qv_stride_head;
};

constexpr int32_t kNoWindow = 2147483647;

static_assert(sizeof(ServeArgs) == 24 * 8 + 27 * 8 + 20 * 4,
              "no padding: Python packs these bytes");

}  // namespace flash
