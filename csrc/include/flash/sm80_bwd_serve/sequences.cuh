// A sequence as the backward kernels see it: as if it were the only one of a call.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/serve_args.h"
#include "flash/ptx/math.cuh"
#include "flash/sm80_bwd/layout.cuh"
#include "flash/tile/key_range.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm80_bwd_serve {

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

FLASH_DEVICE int64_t head_stats(const SequenceArgs& args, int64_t, int64_t head) {
  return head * args.stats_rows;
}

// As flash::Work, of a thread block's rows of a sequence.
template <typename L>
struct SequenceWork {
  using Layout = L;

  int64_t batch = 0;
  int64_t head;
  int first_row;
  int n_rows;
  int begin;
  int end;
  int n_heads;

  FLASH_DEVICE SequenceWork(const SequenceArgs& args, int own_head, int row)
      : head(own_head),
        first_row(row),
        n_rows((L::kOwnsKeys ? args.seqlen_k : args.seqlen_q) - row),
        n_heads(L::kOwnsKeys ? args.n_heads_q / args.n_heads_kv : 1) {
    const int last_row = first_row + min(n_rows, L::kRows) - 1;
    if constexpr (L::kOwnsKeys) {
      // Query i sees keys from i + further - left to i + further + right.
      const int64_t further = int64_t{args.seqlen_k} - args.seqlen_q;
      const int64_t last_query = last_row - further + args.window_left;
      const int64_t first_query = first_row - further - args.window_right;
      begin = static_cast<int>(max(first_query, int64_t{0}) / L::kColumns);
      const int64_t n_queries = min(last_query + 1, int64_t{args.seqlen_q});
      end = static_cast<int>((max(n_queries, int64_t{0}) + L::kColumns - 1) / L::kColumns);
    } else {
      const KeyBlocks<L::kColumns> blocks(args.rule, first_row, last_row);
      begin = blocks.begin;
      end = blocks.end;
    }
  }

  FLASH_DEVICE int n_steps() const { return max(end - begin, 0) * n_heads; }
};

// As BlockMask.
template <bool kOwnsKeys, int kRows, int kColumns>
struct SequenceMask {
  int first_query;
  int first_key;
  bool hides_something;

  FLASH_DEVICE SequenceMask(const SequenceArgs& args, int first_row, int first_column)
      : first_query(kOwnsKeys ? first_column : first_row),
        first_key(kOwnsKeys ? first_row : first_column) {
    constexpr int kQueries = kOwnsKeys ? kColumns : kRows;
    constexpr int kKeys = kOwnsKeys ? kRows : kColumns;
    const int last_query = min(first_query + kQueries, args.seqlen_q) - 1;
    hides_something = args.rule.of(first_query).end < first_key + kKeys ||
                      args.rule.of(last_query).begin > first_key;
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

  FLASH_DEVICE Seen seen(const SequenceArgs& args, int row, int column) const {
    constexpr int64_t kFar = 1 << 20;
    const int key = first_key + (kOwnsKeys ? row : column);
    const int query = first_query + (kOwnsKeys ? column : row);
    const int64_t distance = int64_t{key} - query - (int64_t{args.seqlen_k} - args.seqlen_q);
    return {static_cast<int>(max(-int64_t{args.window_left} - distance, -kFar)),
            static_cast<int>(min(int64_t{args.window_right} - distance, kFar)),
            args.seqlen_k - key};
  }
};

// What the kernels of sm80_bwd are compiled for here.
struct Sequences {
  static constexpr bool kVary = true;
  using Args = SequenceArgs;
  template <typename L>
  using Work = SequenceWork<L>;
  template <bool kOwnsKeys, int kRows, int kColumns>
  using Mask = SequenceMask<kOwnsKeys, kRows, kColumns>;

  // tanh(x) = 1 - 2 / (1 + exp(2 x)), times what becomes the cap when the weights are scaled: as in
  // the forward pass.
  template <typename L>
  FLASH_DEVICE static void cap(const Args& args, typename L::Scores& s) {
    if (args.softcap == 0.0f) return;
    const float tanh_scale = 2.0f * kLog2e * args.softmax_scale / args.softcap;
    const float cap = args.softcap / args.softmax_scale;
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * L::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float exponential = ptx::ex2(s[m][n][i] * tanh_scale);
          s[m][n][i] = fmaf(-2.0f * cap, ptx::rcp(1.0f + exponential), cap);
        }
      }
    }
  }

  // The slope of tanh is 1 - tanh^2, and tanh what the weight was made of.
  template <typename L, typename Stats>
  FLASH_DEVICE static void pass_cap(const Args& args, const typename L::Scores& p,
                                    const Stats& stats, int stage_offset, typename L::Scores& d_s) {
    if (args.softcap == 0.0f) return;
    const float inverse = 1.0f / (args.softcap * kLog2e);
    stats.for_each(stage_offset, [&](int m, int n, int i, const RowStats& row) {
      const float tanh = (ptx::lg2(p[m][n][i]) + row.lse_log2) * inverse;
      d_s[m][n][i] *= p[m][n][i] == 0.0f ? 0.0f : fmaf(-tanh, tanh, 1.0f);
    });
  }
};

}  // namespace flash::sm80_bwd_serve
