// Rows of dQ, on their way from shared to global memory.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/dtype.h"
#include "flash/ptx/memory.cuh"

namespace flash::sm90_bwd {

// A block of queries.
struct QueryBlock {
  int64_t batch_head;
  int64_t sums_row;  // its first among the rows of sums
  int first_query;   // in the batch
  int end;           // behind the last query that exists
};

// Rows that exist, of kQueries, by kThreads: of a tile of chunks of 64 elements, whose rows'
// 16-byte pieces are permuted by the row's number modulo 8 (PTX ISA 5.5.7).
template <DType kDType, int kDHead, int kQueries, int kThreads>
FLASH_DEVICE void store_rounded_rows(const BackwardArgs& args, const QueryBlock& block,
                                     uint32_t tile) {
  constexpr int kChunkRowBytes = 128;
  constexpr int kChunkBytes = kQueries * kChunkRowBytes;
  constexpr int kRowPieces = kDHead * bytes_of(kDType) / 16;
  const int64_t batch = block.batch_head / args.n_heads_q;
  const int64_t head = block.batch_head - batch * args.n_heads_q;
  char* const d_q =
      static_cast<char*>(args.d_q) +
      (batch * args.d_q_stride_batch + head * args.d_q_stride_head) * bytes_of(kDType);
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kRowPieces; i += kThreads) {
    const int row = i / kRowPieces, piece = i % kRowPieces;
    if (block.first_query + row >= block.end) break;
    const uint32_t from =
        tile + piece / 8 * kChunkBytes + row * kChunkRowBytes + (piece % 8 ^ row % 8) * 16;
    const int64_t query = block.first_query + row;
    ptx::st_global_16(d_q + query * args.d_q_stride_seq * bytes_of(kDType) + piece * 16,
                      ptx::ld_shared_16<0>(from));
  }
}

}  // namespace flash::sm90_bwd
