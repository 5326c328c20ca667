// The Hopper family's fused backward pass (sm90_bwd_fused/backward.cuh) for sequences of different
// lengths, and windows. A thread block finds its sequence, and computes as if there were no other:
// the copy engine ends with a sequence's last row, and RowStats and sums of dQ have room for whole
// blocks of each.
#pragma once

#include "flash/sm90_bwd_fused/backward.cuh"
#include "flash/sm90_bwd_fused_serve/args.h"
#include "flash/sm90_bwd_fused_serve/config.h"
#include "flash/sm90_bwd_fused_serve/sequences.cuh"
#include "flash/tile/clear_sums.cuh"

namespace flash::sm90_bwd_fused_serve {

// Where a thread block's rows of RowStats and sums lie: in the grid blocks of kRows come fastest,
// then query heads, then, unless sequences are packed, these.
template <int kRows>
struct StatsRows {
  static_assert(kRowStatsBlock % kRows == 0, "of one sequence");

  unsigned n_rows;  // of a head
  unsigned batch_head;
  int first;  // of the head's
  int query;  // that it stands for, of the batch
  int end;    // behind the sequence's last query

  FLASH_DEVICE explicit StatsRows(const BackwardArgs& call)
      : n_rows(static_cast<unsigned>(Sequences::stats_rows<kRows>(call))),
        batch_head(blockIdx.x / (n_rows / kRows)),
        first(static_cast<int>(blockIdx.x % (n_rows / kRows) * kRows)),
        query(first),
        end(call.seqlen_q) {
    if (call.cu_seqlens_q == nullptr) return;
    const SequenceBlocks<kRowStatsBlock> blocks{call.cu_seqlens_q, call.seqlen_q, call.batch};
    const int sequence = blocks.sequence_of(first / kRowStatsBlock);
    end = 0;
    if (sequence < 0) return;
    const SequenceArgs own(call, sequence);
    const int start = call.cu_seqlens_q[sequence];
    query = start + first - blocks.before(sequence) * kRowStatsBlock;
    end = start + own.seqlen_q;
  }
};

template <FusedServeBackwardKernelConfig kConfig>
FLASH_DEVICE void write_stats(const BackwardArgs& call) {
  constexpr int kLanes = lanes_of_row(kConfig.d_head);
  constexpr int kRows = sm90_bwd::HopperBackwardKernelConfig::kDotsThreads / kLanes;
  const StatsRows<kRows> rows(call);
  const int thread = static_cast<int>(threadIdx.x);
  const int query = rows.query + thread / kLanes;
  write_stats_of_row<kConfig.dtype, kConfig.d_head>(call, rows.batch_head, query, query < rows.end,
                                                    rows.first + thread / kLanes, rows.n_rows,
                                                    thread % kLanes);
}

template <FusedServeBackwardKernelConfig kConfig>
FLASH_DEVICE void round_sums(const BackwardArgs& call) {
  const StatsRows<kConfig.keys_columns> rows(call);
  if (rows.query >= rows.end) return;
  sm90_bwd_fused::round_block<kConfig>(
      call, {.batch_head = rows.batch_head,
             .sums_row = static_cast<int64_t>(rows.batch_head) * rows.n_rows + rows.first,
             .first_query = rows.query,
             .end = rows.end});
}

template <FusedServeBackwardKernelConfig kConfig>
FLASH_DEVICE void gradients(const BackwardKernelArgs& args) {
  using L = sm90_bwd_fused::Layout<kConfig, Sequences>;
  const BackwardArgs& call = args.call;
  const SequenceBlocks<L::kRows> blocks{call.cu_seqlens_k, call.seqlen_k, call.batch};
  // Early keys are seen by the most queries.
  const int block = static_cast<int>(blockIdx.x % blocks.of_head());
  const int sequence = blocks.sequence_of(block);
  if (sequence < 0) return;
  const SequenceArgs own(call, sequence);
  const int row = (block - blocks.before(sequence)) * L::kRows;
  if (row >= own.seqlen_k) return;
  sm90_bwd_fused::gradients<kConfig, L>(args, own, sequence,
                                        static_cast<int>(blockIdx.x / blocks.of_head()), row);
}

template <FusedServeBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardKernelArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    clear_query_sums<kConfig.d_head, sm90_bwd::HopperBackwardKernelConfig::kDotsThreads>(args.call);
    write_stats<kConfig>(args.call);
  } else if constexpr (kVariant == Variant::kKeys) {
    gradients<kConfig>(args);
  } else {
    round_sums<kConfig>(args.call);
  }
}

}  // namespace flash::sm90_bwd_fused_serve
