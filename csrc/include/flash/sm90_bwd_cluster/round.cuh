// dQ from its sums: scaled, rounded, and with rows of queries.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/stmatrix.cuh"
#include "flash/sm90_bwd/rounded_rows.cuh"
#include "flash/sm90_bwd_cluster/args.h"
#include "flash/sm90_bwd_cluster/query_sums.cuh"

namespace flash::sm90_bwd_cluster {

// A thread block rounds a block of queries: each warp what one of the pair's has added. In the grid
// blocks of queries come fastest, then query heads, then the batch.
template <ClusterBackwardKernelConfig kConfig>
FLASH_DEVICE void round_query_sums(const BackwardKernelArgs& launch_args) {
  const BackwardArgs& args = launch_args.call;
  using Part = QuerySums<kConfig>;
  constexpr int kQueries = kConfig.keys_columns;
  constexpr int kChunkBytes = kQueries * 128;
  extern __shared__ __align__(1024) char shared_memory[];
  const uint32_t tile = ptx::shared_address(shared_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % Part::kWarps;
  const int rank = static_cast<int>(threadIdx.x) / 32 / Part::kWarps;

  const unsigned n_blocks = (static_cast<unsigned>(args.seqlen_q) + kQueries - 1) / kQueries;
  const int64_t batch_head = launch_args.sections.rounded_behind() + blockIdx.x / n_blocks;
  const int first_query = static_cast<int>(blockIdx.x % n_blocks) * kQueries;
  const int64_t n_rows = row_stats_rows(args.seqlen_q, kConfig.stats_block());
  const sm90_bwd::QueryBlock block{.batch_head = batch_head,
                                   .sums_row = batch_head * n_rows + first_query,
                                   .first_query = first_query,
                                   .end = args.seqlen_q};
  const char* const sums =
      reinterpret_cast<const char*>(args.d_q_sums + block.sums_row * kConfig.d_head) +
      Part::place(rank, warp) + lane * 16;
#pragma unroll
  for (int piece = 0; piece < Part::kPieces; piece += 2) {
    uint32_t rounded[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const ptx::Vector16 four = ptx::ld_global_16(sums + (piece + i) * Part::kPieceBytes);
      const auto value = [&](int j) { return __uint_as_float(four.word[j]) * args.softmax_scale; };
      rounded[i * 2] = ptx::pack<kConfig.dtype>(value(0), value(1));
      rounded[i * 2 + 1] = ptx::pack<kConfig.dtype>(value(2), value(3));
    }
    const int element = Part::element(rank, piece);
    const int row = lane % 16;
    const int to = (element % Part::kChunk / 8 + lane / 16) ^ row % 8;
    ptx::stmatrix_x4(
        tile + element / Part::kChunk * kChunkBytes + (warp * 16 + row) * 128 + to * 16, rounded[0],
        rounded[1], rounded[2], rounded[3]);
  }
  __syncthreads();

  sm90_bwd::store_rounded_rows<kConfig.dtype, kConfig.d_head, kQueries,
                               ClusterBackwardKernelConfig::kRoundThreads>(args, block, tile);
}

}  // namespace flash::sm90_bwd_cluster
