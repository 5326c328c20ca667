// What no step of the road changes: which part of the problem a thread block computes. The grid is
// one-dimensional, query blocks fastest, then heads, then the batch.
#pragma once

#include "flash/core/args.h"
#include "flash/ptx/device.cuh"
#include "flash/sm80/config.h"

namespace flash::previous {

using sm80::FlashForwardKernelConfig;

namespace common {

template <FlashForwardKernelConfig kConfig>
struct Problem {
  static constexpr int64_t kElementBytes = kConfig.element_bytes();

  const char* q;  // first row of this block's queries
  const char* k;  // first row of this head's keys
  const char* v;
  char* o;
  float* lse;  // this block's first row, or null

  int64_t q_row_bytes;
  int64_t k_row_bytes;
  int64_t v_row_bytes;
  int64_t o_row_bytes;
  int n_kv_blocks;

  FLASH_DEVICE explicit Problem(const ForwardArgs& args)
      : q_row_bytes(args.q_stride_seq * kElementBytes),
        k_row_bytes(args.k_stride_seq * kElementBytes),
        v_row_bytes(args.v_stride_seq * kElementBytes),
        o_row_bytes(args.o_stride_seq * kElementBytes),
        n_kv_blocks(args.seqlen_k / kConfig.B_c) {
    const unsigned n_q_blocks = static_cast<unsigned>(args.seqlen_q) / kConfig.B_r;
    const unsigned batch_head = blockIdx.x / n_q_blocks;
    const unsigned head = batch_head % static_cast<unsigned>(args.n_heads_q);
    const int64_t batch = batch_head / static_cast<unsigned>(args.n_heads_q);
    const int64_t kv_head = head / static_cast<unsigned>(args.n_heads_q / args.n_heads_kv);
    const int64_t q_row = static_cast<int64_t>(blockIdx.x % n_q_blocks) * kConfig.B_r;

    q = at(args.q, batch * args.q_stride_batch + head * args.q_stride_head) + q_row * q_row_bytes;
    k = at(args.k, batch * args.k_stride_batch + kv_head * args.k_stride_head);
    v = at(args.v, batch * args.v_stride_batch + kv_head * args.v_stride_head);
    o = const_cast<char*>(at(args.o, batch * args.o_stride_batch + head * args.o_stride_head)) +
        q_row * o_row_bytes;
    lse = args.lse == nullptr ? nullptr
                              : args.lse + static_cast<int64_t>(batch_head) * args.seqlen_q + q_row;
  }

 private:
  FLASH_DEVICE static const char* at(const void* tensor, int64_t element) {
    return static_cast<const char*>(tensor) + element * kElementBytes;
  }
};

}  // namespace common
}  // namespace flash::previous
