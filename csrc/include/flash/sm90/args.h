// Launch arguments of the Hopper family: tensor maps instead of pointers and strides.
//
// The launcher makes them from ForwardArgs (runtime/sm90/launch.cpp); for the emulator Python does
// (py/flash_helpers/kernels/sm90_fwd/arguments.py).
#pragma once

#include <cstdint>

namespace flash::sm90 {

// What cuTensorMapEncodeTiled writes. Every tensor is seen as five-dimensional, innermost first:
// (column in chunk, sequence, chunk, head, batch), a chunk being one swizzled row of shared memory.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

struct ForwardKernelArgs {
  TensorMap q;  // box: one chunk row, 64 query rows, all chunks
  TensorMap k;  // box: one chunk row, block_n rows, all chunks
  TensorMap v;  // as k
  TensorMap o;  // box: one chunk row, 16 rows, all chunks
  float* lse;   // [batch, n_heads_q, seqlen_q], contiguous, natural log; null: not written
  // The next tile to be computed, counted from the number of thread blocks: 0 before the launch and
  // 0 again after it, not shared with a launch that may run at the same time. Null: every block
  // computes a fixed share of the tiles.
  int32_t* tile_counter;

  int32_t batch;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t n_heads_q;
  int32_t n_heads_kv;         // divides n_heads_q
  int32_t causal;             // 1: query i sees keys up to i + seqlen_k - seqlen_q
  float softmax_scale;        // positive
  int32_t heads_per_section;  // causal: query heads whose K and V share L2, walked together
};

static_assert(sizeof(ForwardKernelArgs) == 576, "Python packs these bytes");

}  // namespace flash::sm90
