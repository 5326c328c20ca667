// Sequences of different lengths in a backward pass: which rows are whose, and which part of a
// sequence a thread block computes.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/serve_args.h"
#include "flash/tile/key_range.cuh"
#include "flash/tile/packed_rows.cuh"

namespace flash {

// The call's record with the addresses and lengths of one sequence.
struct SequenceArgs : BackwardArgs {
  KeyRule rule;
  int64_t stats_rows;  // of a head

  FLASH_DEVICE SequenceArgs(const BackwardArgs& call, int sequence)
      : BackwardArgs(call), stats_rows(row_stats_rows(call.seqlen_q)) {
    int q_start = 0, k_start = 0;
    if (call.cu_seqlens_q != nullptr) {
      q_start = call.cu_seqlens_q[sequence];
      k_start = call.cu_seqlens_k[sequence];
      seqlen_q = call.cu_seqlens_q[sequence + 1] - q_start;
      seqlen_k = call.cu_seqlens_k[sequence + 1] - k_start;
      row_stats += int64_t{q_start} * 2;
    } else {
      row_stats += sequence * call.n_heads_q * stats_rows * 2;
    }
    if (call.seqused_q != nullptr) seqlen_q = min(seqlen_q, call.seqused_q[sequence]);
    if (call.seqused_k != nullptr) seqlen_k = call.seqused_k[sequence];
    seqlen_q = max(0, min(seqlen_q, call.seqlen_q - q_start));
    seqlen_k = max(0, min(seqlen_k, call.seqlen_k - k_start));
    rule = {seqlen_q, seqlen_k, /*leftpad=*/0, window_left, window_right};
    q = at(q, sequence * q_stride_batch + q_start * q_stride_seq);
    d_o = at(d_o, sequence * d_o_stride_batch + q_start * d_o_stride_seq);
    d_q = at(d_q, sequence * d_q_stride_batch + q_start * d_q_stride_seq);
    k = at(k, sequence * k_stride_batch + k_start * k_stride_seq);
    v = at(v, sequence * v_stride_batch + k_start * v_stride_seq);
    d_k = at(d_k, sequence * d_k_stride_batch + k_start * d_k_stride_seq);
    d_v = at(d_v, sequence * d_v_stride_batch + k_start * d_v_stride_seq);
  }

 private:
  // Of 16-bit elements. A gradient that is not wanted stays null.
  template <typename Pointer>
  FLASH_DEVICE static Pointer* at(Pointer* tensor, int64_t element) {
    if (tensor == nullptr) return nullptr;
    return const_cast<char*>(static_cast<const char*>(tensor)) + element * 2;
  }
};

// Blocks of kRows rows of all sequences, for one head: csrc/runtime launches as many. Where the
// device alone knows the lengths, a sequence that begins with row `start` has those from start /
// kRows + its number on: it may have one too many, and never one too few.
template <int kRows>
struct SequenceBlocks {
  const int32_t* starts;  // null: sequences have equal lengths
  int n_rows;             // of all sequences, or of each
  int batch;

  FLASH_DEVICE int of_sequence() const { return (n_rows + kRows - 1) / kRows; }
  FLASH_DEVICE int of_head() const {
    return starts == nullptr ? of_sequence() * batch : n_rows / kRows + batch;
  }
  FLASH_DEVICE int before(int sequence) const {
    return starts == nullptr ? of_sequence() * sequence : starts[sequence] / kRows + sequence;
  }
  // The sequence of a block, or -1: it lies before all. By all lanes of a warp.
  FLASH_DEVICE int sequence_of(int block) const {
    if (starts == nullptr) return block / of_sequence();
    const int lane = threadIdx.x % 32;
    return last_begun(batch, block, lane, [&](int b) { return before(b); });
  }
};

// As flash::Work (gradient_work.cuh), of a thread block's rows of a sequence.
template <typename L>
struct SequenceWork {
  using Layout = L;

  int64_t batch = 0;
  int64_t head;
  int first_row;
  int n_rows;
  int begin;
  int end;
  int first;
  int n_heads;

  // `own`: has the numbers of heads, and the KeyRule of the sequence.
  template <typename Own>
  FLASH_DEVICE SequenceWork(const Own& own, int own_head, int row)
      : head(own_head),
        first_row(row),
        n_rows((L::kOwnsKeys ? own.rule.seqlen_k : own.rule.seqlen_q) - row),
        n_heads(L::kOwnsKeys ? own.n_heads_q / own.n_heads_kv : 1) {
    const KeyRule& rule = own.rule;
    const int last_row = first_row + min(n_rows, L::kRows) - 1;
    if constexpr (L::kOwnsKeys) {
      // Query i sees keys from i + further - left to i + further + right.
      const int64_t further = int64_t{rule.seqlen_k} - rule.seqlen_q;
      const int64_t last_query = last_row - further + rule.left;
      const int64_t first_query = first_row - further - rule.right;
      begin = static_cast<int>(max(first_query, int64_t{0}) / L::kColumns);
      const int64_t n_queries = min(last_query + 1, int64_t{rule.seqlen_q});
      end = static_cast<int>((max(n_queries, int64_t{0}) + L::kColumns - 1) / L::kColumns);
    } else {
      const KeyBlocks<L::kColumns> blocks(rule, first_row, last_row);
      begin = blocks.begin;
      end = blocks.end;
    }
    first = begin;
    if constexpr (L::kStaggers) {
      const bool sees_all = rule.left == kNoWindow && rule.right == kNoWindow;
      if (sees_all && end > 0) first = first_row / L::kColumns % end;
    }
  }

  FLASH_DEVICE int n_steps() const { return max(end - begin, 0) * n_heads; }
  FLASH_DEVICE int64_t own_head() const { return head; }
};

// As BlockMask. `own`: what has the KeyRule of the sequence.
template <bool kOwnsKeys, int kRows, int kColumns>
struct SequenceMask {
  int first_query;
  int first_key;
  bool hides_something;

  template <typename Own>
  FLASH_DEVICE SequenceMask(const Own& own, int first_row, int first_column)
      : first_query(kOwnsKeys ? first_column : first_row),
        first_key(kOwnsKeys ? first_row : first_column) {
    constexpr int kQueries = kOwnsKeys ? kColumns : kRows;
    constexpr int kKeys = kOwnsKeys ? kRows : kColumns;
    const int last_query = min(first_query + kQueries, own.rule.seqlen_q) - 1;
    hides_something = own.rule.of(first_query).end < first_key + kKeys ||
                      own.rule.of(last_query).begin > first_key;
  }

  // Of a thread whose first score is at `row` and `column` of the block: from which to which
  // distance of a key behind its query, both counted from those of this score, it is seen.
  struct Seen {
    int nearest;
    int furthest;
    int n_keys;  // that there are from the first score's on

    FLASH_DEVICE bool at(int down, int right) const {
      const int key = kOwnsKeys ? down : right;
      const int distance = kOwnsKeys ? down - right : right - down;
      return nearest <= distance && distance <= furthest && key < n_keys;
    }
  };

  template <typename Own>
  FLASH_DEVICE Seen seen(const Own& own, int row, int column) const {
    constexpr int64_t kFar = 1 << 20;
    const KeyRule& rule = own.rule;
    const int key = first_key + (kOwnsKeys ? row : column);
    const int query = first_query + (kOwnsKeys ? column : row);
    const int64_t distance = int64_t{key} - query - (int64_t{rule.seqlen_k} - rule.seqlen_q);
    return {static_cast<int>(max(-int64_t{rule.left} - distance, -kFar)),
            static_cast<int>(min(int64_t{rule.right} - distance, kFar)), rule.seqlen_k - key};
  }
};

}  // namespace flash
