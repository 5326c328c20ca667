// Before the attention: new keys and values are written to their places in the cache, keys and
// queries rotated (rotary embeddings: Su et al. 2021, https://arxiv.org/abs/2104.09864). A thread
// block takes a row of new keys and values, or of queries.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/convert.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/sm80_serve/config.h"

namespace flash::sm80_serve {

// A row of a tensor whose sequences have `seqlen` rows each, or begin at `starts`.
struct SequenceRow {
  int batch;
  int row;      // in the sequence
  bool is_one;  // of any sequence

  FLASH_DEVICE SequenceRow(const int32_t* starts, int n_sequences, int seqlen, int of_all) {
    if (starts == nullptr) {
      batch = of_all / seqlen;
      row = of_all % seqlen;
      is_one = true;
      return;
    }
    batch = 0;
    for (int end = n_sequences; end - batch > 1;) {  // the last that begins at or before the row
      const int middle = batch + (end - batch) / 2;
      (starts[middle] <= of_all ? batch : end) = middle;
    }
    row = of_all - starts[batch];
    is_one = row >= 0 && of_all < starts[batch + 1];
  }
};

// Turns pairs of elements by the angles of a position: in fp32, rounded once.
template <DType kDType>
struct Rotation {
  const char* cosines;  // of the position
  const char* sines;
  int dim;           // elements that are rotated; 0: none
  bool interleaved;  // pairs of neighbours, else of elements dim / 2 apart

  FLASH_DEVICE Rotation(const ServeArgs& args, int position)
      : dim(args.rotary_dim), interleaved(args.rotary_interleaved != 0) {
    const int64_t row = max(0, min(position, args.rotary_rows - 1));
    cosines = static_cast<const char*>(args.rotary_cos) + row * dim;  // dim / 2 elements
    sines = static_cast<const char*>(args.rotary_sin) + row * dim;
  }

  // Eight elements of a head, from `column` on.
  FLASH_DEVICE ptx::Vector16 of(const char* head, int column) const {
    const ptx::Vector16 x = ptx::ld_global_16(head + column * 2);
    if (column >= dim) return x;
    return interleaved ? of_neighbours(x, column) : of_halves(x, head, column);
  }

 private:
  FLASH_DEVICE ptx::Vector16 of_neighbours(const ptx::Vector16& x, int column) const {
    const uint2 c = *reinterpret_cast<const uint2*>(cosines + column);
    const uint2 s = *reinterpret_cast<const uint2*>(sines + column);
    ptx::Vector16 turned;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const ptx::Pair pair = ptx::unpack<kDType>(x.word[i]);
      const ptx::Pair cosine = ptx::unpack<kDType>(i < 2 ? c.x : c.y);
      const ptx::Pair sine = ptx::unpack<kDType>(i < 2 ? s.x : s.y);
      const float cos = i % 2 == 0 ? cosine.low : cosine.high;
      const float sin = i % 2 == 0 ? sine.low : sine.high;
      turned.word[i] =
          ptx::pack<kDType>(pair.low * cos - pair.high * sin, pair.high * cos + pair.low * sin);
    }
    return turned;
  }

  FLASH_DEVICE ptx::Vector16 of_halves(const ptx::Vector16& x, const char* head, int column) const {
    const int half = dim / 2;
    const bool is_first = column < half;
    const int angle = is_first ? column : column - half;
    const ptx::Vector16 other = ptx::ld_global_16(head + (is_first ? column + half : angle) * 2);
    const ptx::Vector16 c = ptx::ld_global_16(cosines + angle * 2);
    const ptx::Vector16 s = ptx::ld_global_16(sines + angle * 2);
    const float sign = is_first ? -1.0f : 1.0f;
    ptx::Vector16 turned;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const ptx::Pair own = ptx::unpack<kDType>(x.word[i]);
      const ptx::Pair across = ptx::unpack<kDType>(other.word[i]);
      const ptx::Pair cosine = ptx::unpack<kDType>(c.word[i]);
      const ptx::Pair sine = ptx::unpack<kDType>(s.word[i]);
      turned.word[i] = ptx::pack<kDType>(own.low * cosine.low + sign * across.low * sine.low,
                                         own.high * cosine.high + sign * across.high * sine.high);
    }
    return turned;
  }
};

// Where the rotation of a sequence's first new key lies.
FLASH_DEVICE int first_position(const ServeArgs& args, int batch) {
  return (args.rotary_seqlens == nullptr ? args.seqused_k : args.rotary_seqlens)[batch];
}

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void append_row(const ServeArgs& args, int new_row) {
  constexpr int kBytes = bytes_of(kConfig.dtype);
  const SequenceRow at(args.cu_seqlens_new, args.batch, args.seqlen_new, new_row);
  if (!at.is_one) return;
  const int key = args.seqused_k[at.batch] + at.row;
  if (key < 0 || key >= args.seqlen_k) return;  // there is no room for it
  int64_t page = args.cache_batch_idx == nullptr ? at.batch : args.cache_batch_idx[at.batch];
  int64_t row = key;
  if (args.block_table != nullptr) {
    page = args.block_table[at.batch * args.table_stride + key / args.page_size];
    row = key % args.page_size;
  }
  const int64_t from_row = args.cu_seqlens_new == nullptr ? at.row : new_row;
  const char* const k_new =
      static_cast<const char*>(args.k_new) +
      (at.batch * args.k_new_stride_batch + from_row * args.k_new_stride_seq) * kBytes;
  const char* const v_new =
      static_cast<const char*>(args.v_new) +
      (at.batch * args.v_new_stride_batch + from_row * args.v_new_stride_seq) * kBytes;
  char* const k = static_cast<char*>(const_cast<void*>(args.k)) +
                  (page * args.k_stride_page + row * args.k_stride_seq) * kBytes;
  char* const v = static_cast<char*>(const_cast<void*>(args.v)) +
                  (page * args.v_stride_page + row * args.v_stride_seq) * kBytes;
  const Rotation<kConfig.dtype> rotation(args, first_position(args, at.batch) + at.row);
  const int k_chunks = args.d_head / 8;
  for (int i = threadIdx.x; i < args.n_heads_kv * k_chunks; i += kConfig.n_threads()) {
    const int64_t head = i / k_chunks;
    const int column = i % k_chunks * 8;
    ptx::st_global_16(k + (head * args.k_stride_head + column) * kBytes,
                      rotation.of(k_new + head * args.k_new_stride_head * kBytes, column));
  }
  const int v_chunks = args.d_v / 8;
  for (int i = threadIdx.x; i < args.n_heads_kv * v_chunks; i += kConfig.n_threads()) {
    const int64_t head = i / v_chunks;
    const int column = i % v_chunks * 8;
    ptx::st_global_16(v + (head * args.v_stride_head + column) * kBytes,
                      ptx::ld_global_16(v_new + (head * args.v_new_stride_head + column) * kBytes));
  }
}

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void rotate_query(const ServeArgs& args, int query_row) {
  constexpr int kBytes = bytes_of(kConfig.dtype);
  const SequenceRow at(args.cu_seqlens_q, args.batch, args.seqlen_q, query_row);
  if (!at.is_one) return;
  const int64_t row = args.cu_seqlens_q == nullptr ? at.row : query_row;
  const char* const q_new =
      static_cast<const char*>(args.q_new) +
      (at.batch * args.q_new_stride_batch + row * args.q_new_stride_seq) * kBytes;
  char* const q = static_cast<char*>(const_cast<void*>(args.q)) +
                  (at.batch * args.q_stride_batch + row * args.q_stride_seq) * kBytes;
  const Rotation<kConfig.dtype> rotation(
      args, first_position(args, at.batch) + (args.rotary_each_query != 0 ? at.row : 0));
  const int chunks = args.d_head / 8;
  for (int i = threadIdx.x; i < args.n_heads_q * chunks; i += kConfig.n_threads()) {
    const int64_t head = i / chunks;
    const int column = i % chunks * 8;
    ptx::st_global_16(q + (head * args.q_stride_head + column) * kBytes,
                      rotation.of(q_new + head * args.q_new_stride_head * kBytes, column));
  }
}

template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE void append(const ServeArgs& args) {
  const int block = blockIdx.x;
  if (block < args.n_new) {
    append_row<kConfig>(args, block);
  } else {
    rotate_query<kConfig>(args, block - args.n_new);
  }
}

}  // namespace flash::sm80_serve
