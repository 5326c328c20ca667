// What three warps of the producer's warpgroup, which loads with one, do for other sections than
// their own (sections.h): RowStats and zeros for the sums of dQ of a later one, and dQ of an
// earlier one.
//
// They have few registers, so that hardly anything is kept across a loop that can be worked out
// again.
#pragma once

#include "flash/ptx/convert.cuh"
#include "flash/ptx/fence.cuh"
#include "flash/ptx/lane.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/tma.cuh"
#include "flash/sm90_bwd_cluster/query_sums.cuh"
#include "flash/sm90_bwd_cluster/section_counters.cuh"
#include "flash/sm90_bwd_cluster/tiles.cuh"
#include "flash/tile/row_dots.cuh"

namespace flash::sm90_bwd_cluster {

template <ClusterBackwardKernelConfig kConfig>
struct SpareWarp {
  using Counters = SectionCounters<kConfig>;
  using Part = QuerySums<kConfig>;
  static constexpr unsigned kRowBytes = kConfig.d_head * sizeof(float);  // of sums
  static constexpr int kBytes = bytes_of(kConfig.dtype);                 // of an element
  static constexpr int kLanes = lanes_of_row(kConfig.d_head);
  static constexpr unsigned kRows = 32 / kLanes;  // that are prepared at once

  const BackwardKernelArgs& args;
  const Layout<kConfig>& smem;
  const unsigned warp;  // of the spare ones

  FLASH_DEVICE void run() const {
    const HeadSections& sections = args.sections;
    if (pair_in_section() >= sections.workers) return;
    if (own_section() + sections.lead < sections.count) prepare();
    if (sections.rounds(own_section()) && args.call.d_q != nullptr) round();
  }

 private:
  FLASH_DEVICE static int lane() { return static_cast<int>(ptx::lane_id()); }
  // The pair's place in the grid's order, read again wherever it is asked for.
  FLASH_DEVICE unsigned pair() const {
    return WarpTile<Layout<kConfig>>::place(smem.kept(static_cast<int>(warp)));
  }
  FLASH_DEVICE unsigned own_section() const { return pair() / args.sections.pairs; }
  FLASH_DEVICE unsigned pair_in_section() const { return pair() % args.sections.pairs; }

  // What a warp has of the parts of a section's query heads, as numbers among those of all heads.
  struct Share {
    unsigned begin;
    unsigned end;
  };
  FLASH_DEVICE Share share(unsigned section, unsigned parts_of_head) const {
    const unsigned first = args.sections.first_head(section) * parts_of_head;
    const unsigned n = args.sections.end_head(section) * parts_of_head - first;
    const unsigned workers = Counters{args}.all_prepared();
    const unsigned block = pair_in_section() * Counters::kBlocks + ptx::cluster_rank();
    const unsigned worker = block * Counters::kSpareWarps + warp;
    const unsigned least = n / workers, more = n % workers;
    const unsigned begin = first + least * worker + min(worker, more);
    return {begin, begin + least + (worker < more ? 1 : 0)};
  }

  // A row of a query head of a tensor with such strides: bytes.
  FLASH_DEVICE int64_t offset(unsigned batch_head, unsigned row, int64_t of_batch, int64_t of_seq,
                              int64_t of_head) const {
    const unsigned heads = static_cast<unsigned>(args.call.n_heads_q);
    const int64_t batch = batch_head / heads, head = batch_head % heads;
    return (batch * of_batch + row * of_seq + head * of_head) * kBytes;
  }
  FLASH_DEVICE const char* row_of_o(unsigned batch_head, unsigned row) const {
    const BackwardArgs& call = args.call;
    return static_cast<const char*>(call.o) +
           offset(batch_head, row, call.o_stride_batch, call.o_stride_seq, call.o_stride_head);
  }
  FLASH_DEVICE const char* row_of_d_o(unsigned batch_head, unsigned row) const {
    const BackwardArgs& call = args.call;
    return static_cast<const char*>(call.d_o) + offset(batch_head, row, call.d_o_stride_batch,
                                                       call.d_o_stride_seq, call.d_o_stride_head);
  }

  FLASH_DEVICE void prepare() const {
    const auto section = [&] { return own_section() + args.sections.lead; };
    const Share steps = share(section(), args.sections.rows_of_head / kRows);
    const Share rows{steps.begin * kRows, steps.end * kRows};
    prefetch(rows);
    clear(rows);
    write_stats(rows);
    ptx::fence_proxy_async_global();  // for the copy engine of any thread block
    __syncwarp();                     // lane 0 says so for all
    if (lane() == 0) ptx::red_add_release(Counters{args}.prepared(section()), 1);
  }

  // O and dO.
  FLASH_DEVICE void prefetch(const Share& rows) const {
    const unsigned n_rows = args.sections.rows_of_head;
#pragma unroll 1
    for (unsigned i = rows.begin + lane(); i < rows.end; i += 32) {
      const unsigned head = i / n_rows, row = i - head * n_rows;
      if (row >= static_cast<unsigned>(args.call.seqlen_q)) continue;
      ptx::prefetch_l2<kConfig.row_bytes()>(row_of_o(head, row));
      ptx::prefetch_l2<kConfig.row_bytes()>(row_of_d_o(head, row));
    }
  }

  // Sums.
  FLASH_DEVICE void clear(const Share& rows) const {
    char* const sums = reinterpret_cast<char*>(args.call.d_q_sums) + lane() * 16;
#pragma unroll 1
    for (unsigned row = rows.begin; row < rows.end; row += kRows) {
#pragma unroll
      for (unsigned piece = 0; piece < kRows * kRowBytes; piece += 32 * 16) {
        ptx::st_global_16(sums + int64_t{row} * kRowBytes + piece, {});
      }
    }
  }

  FLASH_DEVICE void write_stats(const Share& rows) const {
    const BackwardArgs& call = args.call;
    const unsigned n_rows = args.sections.rows_of_head;
    unsigned left = 0;  // of the head
    unsigned lse_row = 0;
    const char* o = nullptr;
    const char* d_o = nullptr;
#pragma unroll 1
    for (unsigned i = rows.begin; i < rows.end; i += kRows) {
      if (left == 0) {
        const unsigned head = i / n_rows, row = i - head * n_rows + lane() / kLanes;
        left = n_rows - (i - head * n_rows);
        lse_row = head * call.seqlen_q + row;
        o = row_of_o(head, row);
        d_o = row_of_d_o(head, row);
      }
      const bool exists = n_rows - left + lane() / kLanes < static_cast<unsigned>(call.seqlen_q);
      const float lse = exists ? call.lse[lse_row] : kNegativeInfinity;
      float dot = 0.0f;
      if (exists) {
        dot = dot_of_lane<kConfig.dtype, kConfig.d_head, 1>(o, d_o, lane() % kLanes);
      }
      dot = sum_of_lanes<kConfig.d_head>(dot);
      if (lane() % kLanes == 0) {
        store_row_stats(call, lse_row, lse, lse == kNegativeInfinity ? 0.0f : dot,
                        i + lane() / kLanes);
      }
      left -= kRows;
      lse_row += kRows;
      o += kRows * call.o_stride_seq * kBytes;
      d_o += kRows * call.d_o_stride_seq * kBytes;
    }
  }

  // A part is what a warp of one of a pair's thread blocks has added, of 16 queries.
  FLASH_DEVICE void round() const {
    const unsigned section = own_section() - args.sections.lead;
    if (lane() == 0) Counters::await(Counters{args}.added(section), Counters{args}.all_added());
    __syncwarp();
    constexpr unsigned kParts = Counters::kBlocks * Part::kWarps;  // of a block of queries
    const unsigned n_parts = args.sections.rows_of_head / kConfig.keys_columns * kParts;
    const Share parts = share(section, n_parts);
    const BackwardArgs& call = args.call;
#pragma unroll 1
    for (unsigned i = parts.begin; i < parts.end; ++i) {
      const unsigned head = i / n_parts;
      const unsigned query =
          (i - head * n_parts) / kParts * kConfig.keys_columns + i % Part::kWarps * 16 + lane() / 4;
      round_part(static_cast<char*>(call.d_q) +
                     offset(head, query, call.d_q_stride_batch, call.d_q_stride_seq,
                            call.d_q_stride_head) +
                     lane() % 4 * 2 * kBytes,
                 query, static_cast<int>(i % kParts / Part::kWarps),
                 reinterpret_cast<const char*>(call.d_q_sums) + int64_t{i} * Part::kWarpBytes +
                     lane() * 16);
    }
  }

  // This lane's: of two rows, eight apart.
  FLASH_DEVICE void round_part(char* d_q, unsigned query, int rank, const char* sums) const {
    const BackwardArgs& call = args.call;
    const bool wanted[2] = {query < static_cast<unsigned>(call.seqlen_q),
                            query + 8 < static_cast<unsigned>(call.seqlen_q)};
    constexpr int kTogether = 4;
    static_assert(Part::kChunkPieces % kTogether == 0 && Part::kPieces % kTogether == 0);
#pragma unroll 1
    for (int piece = 0; piece < Part::kPieces; piece += kTogether) {
      uint32_t rounded[kTogether][2];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const ptx::Vector16 four = ptx::ld_global_16(sums + j * Part::kPieceBytes);
        const auto value = [&](int w) {
          return __uint_as_float(four.word[w]) * call.softmax_scale;
        };
        rounded[j][0] = ptx::pack<kConfig.dtype>(value(0), value(1));
        rounded[j][1] = ptx::pack<kConfig.dtype>(value(2), value(3));
      }
      sums += kTogether * Part::kPieceBytes;
      char* to = d_q + Part::element(rank, piece) * kBytes;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (wanted[row]) *reinterpret_cast<uint32_t*>(to + j * 16) = rounded[j][row];
        }
        to += 8 * call.d_q_stride_seq * kBytes;
      }
    }
  }
};

}  // namespace flash::sm90_bwd_cluster
