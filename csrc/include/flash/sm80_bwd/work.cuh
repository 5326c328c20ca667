// Which part of the problem a thread block computes: its own rows, and the blocks that pass by.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/tile/visible.cuh"

namespace flash::sm80_bwd {

// Rows of one head of a tensor.
struct Rows {
  char* first;
  int64_t row_bytes;
};

// `strides`: the argument record's three of the tensor. 16-bit elements.
FLASH_DEVICE Rows rows_of(const void* tensor, const int64_t& stride_batch, int64_t stride_seq,
                          int64_t stride_head, int64_t batch, int64_t head, int64_t row) {
  const int64_t element = batch * stride_batch + head * stride_head + row * stride_seq;
  return {static_cast<char*>(const_cast<void*>(tensor)) + element * 2, stride_seq * 2};
}

// The grid is one-dimensional (no 65,535 limit on batch or heads): row blocks fastest, so that
// blocks that read the same tensors run side by side, then heads, then the batch. Causal, the
// blocks with the most work come first.
template <typename L>
struct Work {
  int64_t batch;
  int64_t head;  // of K and V where keys are the rows, else of Q
  int first_row;
  int n_rows;   // that exist, from first_row on: may be more than a block has
  int begin;    // the first block that passes by
  int end;      // the block after the last
  int n_heads;  // how often they pass by: once for each query head of the group

  FLASH_DEVICE Work(const BackwardArgs& args, unsigned block) {
    const int seqlen = L::kOwnsKeys ? args.seqlen_k : args.seqlen_q;
    const unsigned n_blocks = (static_cast<unsigned>(seqlen) + L::kRows - 1) / L::kRows;
    const int own_heads = L::kOwnsKeys ? args.n_heads_kv : args.n_heads_q;
    unsigned own_block = block % n_blocks;
    if (!L::kOwnsKeys && args.causal) own_block = n_blocks - 1 - own_block;
    head = block / n_blocks % static_cast<unsigned>(own_heads);
    batch = block / n_blocks / static_cast<unsigned>(own_heads);
    first_row = static_cast<int>(own_block * L::kRows);
    n_rows = seqlen - first_row;
    n_heads = L::kOwnsKeys ? args.n_heads_q / args.n_heads_kv : 1;
    set_range(args);
  }

  FLASH_DEVICE int n_steps() const { return max(end - begin, 0) * n_heads; }

 private:
  // Blocks of which something is visible from the block's own rows.
  FLASH_DEVICE void set_range(const BackwardArgs& args) {
    begin = 0;
    unsigned n_columns = L::kOwnsKeys ? args.seqlen_q : args.seqlen_k;
    if (args.causal) {
      if constexpr (L::kOwnsKeys) {
        begin = max(0, first_row - args.seqlen_k + args.seqlen_q) / L::kColumns;
      } else {
        n_columns = n_visible_keys(args, first_row + min(n_rows, L::kRows) - 1);
      }
    }
    end = static_cast<int>((n_columns + L::kColumns - 1) / L::kColumns);
  }
};

// A place among the blocks that pass by.
struct Place {
  int block;
  int head;  // of the group

  template <typename L>
  FLASH_DEVICE void advance(const Work<L>& work) {
    if (++block < work.end) return;
    block = work.begin;
    ++head;
  }
};

}  // namespace flash::sm80_bwd
