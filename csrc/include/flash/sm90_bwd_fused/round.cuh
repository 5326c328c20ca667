// dQ from its sums: scaled, rounded, and with rows of queries.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm90_bwd_fused/query_sums.cuh"
#include "flash/sm90_bwd_fused/transposed.cuh"

namespace flash::sm90_bwd_fused {

// A block of queries.
struct QueryBlock {
  int64_t batch_head;
  int64_t sums_row;  // its first among the rows of sums
  int first_query;   // in the batch
  int end;           // behind the last query that exists
};

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

  constexpr int kRowPieces = kConfig.row_bytes() / 16;
  const int64_t batch = block.batch_head / args.n_heads_q;
  const int64_t head = block.batch_head - batch * args.n_heads_q;
  char* const d_q =
      static_cast<char*>(args.d_q) +
      (batch * args.d_q_stride_batch + head * args.d_q_stride_head) * bytes_of(kConfig.dtype);
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kRowPieces;
       i += FusedBackwardKernelConfig::kWarps * 32) {
    const int row = i / kRowPieces, piece = i % kRowPieces;
    if (block.first_query + row >= block.end) break;
    const uint32_t from =
        tile + piece / 8 * kChunkBytes + row * kChunkRowBytes + (piece % 8 ^ row % 8) * 16;
    const int64_t query = block.first_query + row;
    ptx::st_global_16(d_q + query * args.d_q_stride_seq * bytes_of(kConfig.dtype) + piece * 16,
                      ptx::ld_shared_16<0>(from));
  }
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
