// The blocks that pass by a thread block's own rows, on their way to shared memory.
#pragma once

#include "flash/sm80_bwd/row_copy.cuh"
#include "flash/sm80_bwd/rows.cuh"
#include "flash/sm80_bwd/weights.cuh"
#include "flash/tile/gradient_work.cuh"

namespace flash::sm80_bwd {

template <typename L>
struct PassingBlocks {
  using Copy = RowCopy<typename L::Tile, L::kThreads>;

  const typename L::Args& args;
  const typename L::Work& work;
  const Copy& copy;
  uint32_t smem;
  Place next;

  FLASH_DEVICE PassingBlocks(const typename L::Args& args, const typename L::Work& work,
                             const Copy& copy, uint32_t smem)
      : args(args), work(work), copy(copy), smem(smem), next{work.begin, 0} {}

  // Issues the copies of the next block to a stage.
  FLASH_DEVICE void issue(int stage) {
    issue(stage, [] {});
  }

  // What scores are made of, then whatever `between` issues, and the rest.
  template <typename Between>
  FLASH_DEVICE void issue(int stage, Between between) {
    const int row = next.block * L::kColumns;
    const uint32_t start = smem + stage * L::kStageBytes;
    if constexpr (L::kOwnsKeys) {
      const int64_t head = work.head * work.n_heads + next.head;
      const Rows q = rows_of(args.q, args.q_stride_batch, args.q_stride_seq, args.q_stride_head,
                             work.batch, head, row);
      const Rows d_o = rows_of(args.d_o, args.d_o_stride_batch, args.d_o_stride_seq,
                               args.d_o_stride_head, work.batch, head, row);
      load(start + L::kOther1, q, args.seqlen_q - row);
      load_stats(start + L::kStats, head, row);
      between();
      load(start + L::kOther2, d_o, args.seqlen_q - row);
    } else {
      const int64_t head = work.head / (args.n_heads_q / args.n_heads_kv);
      const Rows k = rows_of(args.k, args.k_stride_batch, args.k_stride_seq, args.k_stride_head,
                             work.batch, head, row);
      const Rows v = rows_of(args.v, args.v_stride_batch, args.v_stride_seq, args.v_stride_head,
                             work.batch, head, row);
      load(start + L::kOther1, k, args.seqlen_k - row);
      between();
      load(start + L::kOther2, v, args.seqlen_k - row);
    }
    next.advance(work);
  }

 private:
  FLASH_DEVICE void load(uint32_t tile, const Rows& rows, int n_rows) {
    copy.template load<L::kColumns>(tile, rows.first, rows.row_bytes, n_rows);
  }

  FLASH_DEVICE void load_stats(uint32_t tile, int64_t head, int row) {
    const int64_t first = head_stats(args, work.batch, head) + row;
    const RowStats* stats = reinterpret_cast<const RowStats*>(args.row_stats) + first;
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (L::Calls::kVary) {
      // A sequence begins at any row. Behind its end are zeros, as in Q and dO: weights of 1, and
      // gradients of 0.
      static_assert(L::kColumns <= L::kThreads);
      const uint32_t bytes = thread < args.seqlen_q - row ? sizeof(RowStats) : 0;
      if (thread < L::kColumns) {
        ptx::cp_async_8_zero_fill<0>(tile + thread * 8, stats + (bytes == 0 ? 0 : thread), bytes);
      }
    } else {
      // Two rows a thread. They all exist: a head's RowStats are filled up to whole blocks.
      static_assert(kRowStatsBlock % L::kColumns == 0);
      if (thread < L::kColumns / 2) ptx::cp_async_16<0>(tile + thread * 16, stats + thread * 2);
    }
  }
};

}  // namespace flash::sm80_bwd
