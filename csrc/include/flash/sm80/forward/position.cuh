// Which part of the problem a thread block computes, as byte pointers into the tensors.
#pragma once

#include "flash/core/args.h"
#include "flash/ptx/device.cuh"
#include "flash/sm80/config.h"
#include "flash/sm80/forward/bounds.cuh"

namespace flash::sm80 {

// The grid is one-dimensional (no 65,535 limit on batch or heads): query blocks fastest, so that
// blocks that share K and V run side by side, then heads, then the batch.
//
// kAnyLength: the last query block may be shorter. Causal blocks come last to first: late queries
// see more keys, and a grid that ends with its short blocks keeps the whole GPU busy for longer.
template <FlashForwardKernelConfig kConfig, Coverage kCoverage>
struct BlockPosition {
  static constexpr int64_t kElementBytes = kConfig.element_bytes();

  const char* q;  // first row of this block's queries
  const char* k;  // first row of this head's keys
  const char* v;
  char* o;
  float* lse;     // this block's first row, or null
  int first_row;  // of this block's queries

  // `block`: blockIdx.x
  FLASH_DEVICE BlockPosition(const ForwardArgs& args, unsigned block) {
    constexpr bool kAnyLength = kCoverage == Coverage::kAnyLength;
    constexpr unsigned kRoundUp = kAnyLength ? kConfig.B_r - 1 : 0;
    const unsigned n_q_blocks = (static_cast<unsigned>(args.seqlen_q) + kRoundUp) / kConfig.B_r;
    unsigned q_block = block % n_q_blocks;
    if (kAnyLength && args.causal) q_block = n_q_blocks - 1 - q_block;
    const unsigned batch_head = block / n_q_blocks;
    const unsigned head = batch_head % static_cast<unsigned>(args.n_heads_q);
    const int64_t batch = batch_head / static_cast<unsigned>(args.n_heads_q);
    const int64_t kv_head = head / static_cast<unsigned>(args.n_heads_q / args.n_heads_kv);
    const int64_t q_row = static_cast<int64_t>(q_block) * kConfig.B_r;
    first_row = static_cast<int>(q_row);

    q = at(args.q,
           batch * args.q_stride_batch + q_row * args.q_stride_seq + head * args.q_stride_head);
    k = at(args.k, batch * args.k_stride_batch + kv_head * args.k_stride_head);
    v = at(args.v, batch * args.v_stride_batch + kv_head * args.v_stride_head);
    o = const_cast<char*>(at(args.o, batch * args.o_stride_batch + q_row * args.o_stride_seq +
                                         head * args.o_stride_head));
    lse = args.lse == nullptr ? nullptr
                              : args.lse + static_cast<int64_t>(batch_head) * args.seqlen_q + q_row;
  }

 private:
  FLASH_DEVICE static const char* at(const void* tensor, int64_t element) {
    return static_cast<const char*>(tensor) + element * kElementBytes;
  }
};

}  // namespace flash::sm80
