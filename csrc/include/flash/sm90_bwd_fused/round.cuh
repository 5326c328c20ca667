// dQ from its sums: scaled, rounded, and with rows of queries.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90_bwd/rounded_rows.cuh"
#include "flash/sm90_bwd_fused/query_sums.cuh"
#include "flash/sm90_bwd_fused/transposed.cuh"

namespace flash::sm90_bwd_fused {

using sm90_bwd::QueryBlock;

// A thread block rounds it: its warps read what those of the consumers have added.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE void round_block(const BackwardArgs& args, const QueryBlock& block) {
  using Part = QuerySums<kConfig>;
  constexpr int kQueries = kConfig.keys_columns;
  constexpr int kChunkBytes = kQueries * kChunkRowBytes;
  constexpr int kSteps = Part::kQueries / 16;
  extern __shared__ __align__(1024) char shared_memory[];
  const uint32_t tile = ptx::shared_address(shared_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_warp = static_cast<int>(threadIdx.x) / 32;
  const int group = group_warp / 4;

  const char* const sums =
      reinterpret_cast<const char*>(args.d_q_sums + block.sums_row * kConfig.d_head) +
      group_warp * Part::kWarpBytes + lane * 16;
  if (group_warp < Part::kWarps) {
    uint32_t rounded[kSteps][4];
#pragma unroll
    for (int piece = 0; piece < Part::kPieces; ++piece) {
      const ptx::Vector16 four = ptx::ld_global_16(sums + piece * Part::kPieceBytes);
      const auto value = [&](int i) { return __uint_as_float(four.word[i]) * args.softmax_scale; };
      rounded[piece / 2][piece % 2 * 2] = ptx::pack<kConfig.dtype>(value(0), value(1));
      rounded[piece / 2][piece % 2 * 2 + 1] = ptx::pack<kConfig.dtype>(value(2), value(3));
    }
    store_transposed(rounded,
                     transposed_address(tile + Part::first_element(group) / 64 * kChunkBytes +
                                            Part::first_query(group) * kChunkRowBytes,
                                        group_warp % 4, lane));
  }
  __syncthreads();

  sm90_bwd::store_rounded_rows<kConfig.dtype, kConfig.d_head, kQueries,
                               FusedBackwardKernelConfig::kWarps * 32>(args, block, tile);
}

// In the grid blocks of queries come fastest, then query heads, then the batch.
template <FusedBackwardKernelConfig kConfig>
FLASH_DEVICE void round_query_sums(const BackwardArgs& args) {
  constexpr int kQueries = kConfig.keys_columns;
  const unsigned n_blocks = (static_cast<unsigned>(args.seqlen_q) + kQueries - 1) / kQueries;
  const int64_t batch_head = blockIdx.x / n_blocks;
  const int first_query = static_cast<int>(blockIdx.x % n_blocks) * kQueries;
  const int64_t n_rows = row_stats_rows(args.seqlen_q, kConfig.stats_block());
  round_block<kConfig>(args, {.batch_head = batch_head,
                              .sums_row = batch_head * n_rows + first_query,
                              .first_query = first_query,
                              .end = args.seqlen_q});
}

}  // namespace flash::sm90_bwd_fused
