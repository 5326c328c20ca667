// dQ: a block's share of each sum is added in global memory, in fp32, and rounded when all have.
//
// Of a block of queries the n-th sum of all threads lie behind each other, so that what a warp adds
// or reads is one line of 128 bytes.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/reduce.cuh"
#include "flash/sm80_bwd/rows.cuh"
#include "flash/sm80_bwd_fused/layout.cuh"

namespace flash::sm80_bwd_fused {

// Where those of a thread are, of the block that begins with query `row` of a head.
template <AmpereFusedBackwardKernelConfig kConfig>
FLASH_DEVICE float* sums_of_thread(const BackwardArgs& args, int64_t batch_head, int row) {
  const int64_t first = batch_head * row_stats_rows(args.seqlen_q) + row;
  return args.d_q_sums + first * kConfig.d_head + threadIdx.x;
}

template <typename L>
FLASH_DEVICE void add_query_sums(const typename L::Sums& sums, float* to) {
#pragma unroll
  for (int m = 0; m < L::kSumsTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 2 * L::kSumsColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ptx::red_add_f32(to + ((m * 2 * L::kSumsColumnTiles + n) * 4 + i) * L::kThreads,
                         sums[m][n][i]);
      }
    }
  }
}

// In the grid blocks of queries come fastest, then query heads, then the batch.
template <AmpereFusedBackwardKernelConfig kConfig>
FLASH_DEVICE void round_query_sums(const BackwardArgs& args) {
  using L = Layout<kConfig>;
  using Tile = typename L::Tile;
  extern __shared__ __align__(128) char shared_memory[];
  const uint32_t tile = ptx::shared_address(shared_memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const unsigned n_blocks = (static_cast<unsigned>(args.seqlen_q) + L::kColumns - 1) / L::kColumns;
  const int64_t batch_head = blockIdx.x / n_blocks;
  const int first_row = static_cast<int>(blockIdx.x % n_blocks) * L::kColumns;

  const float* const sums = sums_of_thread<kConfig>(args, batch_head, first_row);
  const int row = warp / L::kSumsParts * L::kSumsRows + lane / 4;
  const int chunk = warp % L::kSumsParts * 2 * L::kSumsColumnTiles;
#pragma unroll
  for (int i = 0; i < L::kSums; i += 2) {
    const int m = i / (8 * L::kSumsColumnTiles), n = i / 4 % (2 * L::kSumsColumnTiles);
    const uint32_t packed =
        ptx::pack<kConfig.dtype>(sums[i * L::kThreads] * args.softmax_scale,
                                 sums[(i + 1) * L::kThreads] * args.softmax_scale);
    ptx::st_shared_4<0>(tile + Tile::offset(row + m * 16 + i % 4 / 2 * 8, chunk + n) + lane % 4 * 4,
                        packed);
  }
  __syncthreads();

  const sm80_bwd::Rows rows =
      sm80_bwd::rows_of(args.d_q, args.d_q_stride_batch, args.d_q_stride_seq, args.d_q_stride_head,
                        batch_head / args.n_heads_q, batch_head % args.n_heads_q, first_row);
  for (int i = thread; i < L::kColumns * Tile::kChunksPerRow; i += L::kThreads) {
    const int r = i / Tile::kChunksPerRow, c = i % Tile::kChunksPerRow;
    if (first_row + r >= args.seqlen_q) break;
    ptx::st_global_16(rows.first + r * rows.row_bytes + c * Tile::kChunkBytes,
                      ptx::ld_shared_16<0>(tile + Tile::offset(r, c)));
  }
}

}  // namespace flash::sm80_bwd_fused
