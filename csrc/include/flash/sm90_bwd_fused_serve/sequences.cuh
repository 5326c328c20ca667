// A thread block's sequence, and where its rows lie for the copy engine.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/layout.cuh"
#include "flash/tile/sequence_work.cuh"

namespace flash::sm90_bwd_fused_serve {

// A thread block's part of a sequence.
template <typename L>
struct Work : SequenceWork<L> {
  KeyRule rule;
  bool packed;
  int q_start = 0;
  int k_start = 0;
  int first_stats = 0;

  FLASH_DEVICE Work(const BackwardArgs& call, const SequenceArgs& own, int sequence, int head,
                    int row)
      : SequenceWork<L>(own, head, row), rule(own.rule), packed(call.cu_seqlens_q != nullptr) {
    if (packed) {
      q_start = call.cu_seqlens_q[sequence];
      k_start = call.cu_seqlens_k[sequence];
      first_stats = (q_start / kRowStatsBlock + sequence) * kRowStatsBlock;
    } else {
      this->batch = sequence;
    }
  }
};

// What the fused kernels are compiled for here.
struct Sequences {
  static constexpr bool kSplitsHeads = false;
  static constexpr bool kStays = false;
  template <typename L>
  using Work = sm90_bwd_fused_serve::Work<L>;
  template <bool kOwnsKeys, int kRows, int kColumns>
  using Mask = SequenceMask<kOwnsKeys, kRows, kColumns>;

  template <typename Own>
  FLASH_DEVICE static const Own& rule(const BackwardArgs&, const Own& work) {
    return work;
  }
  template <int kRows, typename Own>
  FLASH_DEVICE static sm90_bwd::BoxStart own_box(const Own& work, int row, int head) {
    return box<kRows>(work, row, head, work.rule.seqlen_k, work.k_start);
  }
  template <int kRows, typename Own>
  FLASH_DEVICE static sm90_bwd::BoxStart other_box(const Own& work, int row, int head) {
    return box<kRows>(work, row, head, work.rule.seqlen_q, work.q_start);
  }
  template <typename Own>
  FLASH_DEVICE static int first_stats(const Own& work) {
    return work.first_stats;
  }
  template <int kColumns>
  FLASH_DEVICE static int64_t stats_rows(const BackwardArgs& call) {
    static_assert(kRowStatsBlock % kColumns == 0, "a sequence begins with a block");
    return call.cu_seqlens_q == nullptr ? row_stats_rows(call.seqlen_q)
                                        : packed_stats_rows(call.seqlen_q, call.batch);
  }

 private:
  // The rows of the map of packed rows end with row kRaggedRows. So many rows before that one a
  // copy begins as there are; what it has more, the copy engine fills up with zeros, or does not
  // write. The two last coordinates take kRaggedRows rows away again, and go to where the copy
  // ends: see packed_map() in csrc/runtime/sm90_bwd/launch.cpp.
  template <int kRows, typename Own>
  FLASH_DEVICE static sm90_bwd::BoxStart box(const Own& work, int row, int head, int n_rows,
                                             int start) {
    if (!work.packed) return {row, 0, head, static_cast<int>(work.batch)};
    const int count = max(min(n_rows - row, kRows), 0);
    constexpr int kEnd = sm90_bwd::kRaggedRows;
    return {kEnd - count, head * Own::Layout::kChunks, start + row + count, kEnd};
  }
};

}  // namespace flash::sm90_bwd_fused_serve
