// The Ampere family's backward pass (sm80_bwd/backward.cuh) for sequences of different lengths,
// windows and soft caps. A thread block finds its sequence, and computes as if there were no other.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm80_bwd/backward.cuh"
#include "flash/sm80_bwd_serve/config.h"
#include "flash/sm80_bwd_serve/sequences.cuh"
#include "flash/tile/sequence_work.cuh"

namespace flash::sm80_bwd_serve {

template <AmpereServeBackwardKernelConfig kConfig, Variant kVariant>
FLASH_DEVICE void backward(const BackwardArgs& args) {
  if constexpr (kVariant == Variant::kDots) {
    write_row_stats<kConfig.dtype, kConfig.d_head, AmpereServeBackwardKernelConfig::kDotsThreads>(
        args);
  } else {
    using L = sm80_bwd::Layout<kConfig, kVariant, Sequences>;
    const SequenceBlocks<L::kRows> blocks{L::kOwnsKeys ? args.cu_seqlens_k : args.cu_seqlens_q,
                                          L::kOwnsKeys ? args.seqlen_k : args.seqlen_q, args.batch};
    const int of_head = blocks.of_head();
    const int turn = static_cast<int>(blockIdx.x % of_head);
    // Late queries see the most keys, and early keys are seen by the most queries.
    const int block = L::kOwnsKeys ? turn : of_head - 1 - turn;
    const int sequence = blocks.sequence_of(block);
    if (sequence < 0) return;
    const SequenceArgs own(args, sequence);
    const int row = (block - blocks.before(sequence)) * L::kRows;
    if (row >= (L::kOwnsKeys ? own.seqlen_k : own.seqlen_q)) return;
    const typename L::Work work(own, static_cast<int>(blockIdx.x / of_head), row);
    // As sm80_bwd::all_gradients does; called here, it would change the order of instructions.
    if constexpr (L::kOwnsKeys && kConfig.sums_in_turn()) {
      if (own.d_v != nullptr) sm80_bwd::gradients<kConfig, L, false, true>(own, work);
      __syncthreads();  // the values' gradients are written; every warp has read the last block
      if (own.d_k != nullptr) sm80_bwd::gradients<kConfig, L, true, false>(own, work);
    } else {
      sm80_bwd::gradients<kConfig, L>(own, work);
    }
  }
}

}  // namespace flash::sm80_bwd_serve
