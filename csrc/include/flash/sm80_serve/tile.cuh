// Which part of the problem a thread block computes.
//
// The query heads that share a KV head are rows of one tile: row r of a sequence is query r / group
// of head r % group, so that keys are read once for all of them, and one query fills as many rows
// as there are heads.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/device.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/tile/divisor.cuh"
#include "flash/tile/key_range.cuh"
#include "flash/tile/packed_rows.cuh"

namespace flash::sm80_serve {

// Tiles of B_r rows come before sequence `b`, if it begins with row `start` of q. A sequence may
// have a tile too many, and never one too few; so no sums over lengths are needed.
template <AmpereServeKernelConfig kConfig>
constexpr int64_t tiles_before(int64_t start, int b, int group) {
  return start * group / kConfig.B_r + b;
}

// Tiles of all sequences; the host launches as many. With cu_seqlens_q, one too many for each.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE unsigned n_tiles(const ServeArgs& args) {
  const int group = args.n_heads_q / args.n_heads_kv;
  if (args.cu_seqlens_q != nullptr) {
    return static_cast<unsigned>(tiles_before<kConfig>(args.n_rows, args.batch, group));
  }
  return (args.seqlen_q * group + kConfig.B_r - 1) / kConfig.B_r * args.batch;
}

// The last sequence that begins at or before `tile`, or -1: found by all lanes of a warp.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE int sequence_of(const ServeArgs& args, unsigned tile, int lane) {
  const int group = args.n_heads_q / args.n_heads_kv;
  return last_begun(args.batch, int64_t{tile}, lane,
                    [&](int b) { return tiles_before<kConfig>(args.cu_seqlens_q[b], b, group); });
}

// What a tile has to know of its sequence.
struct Sequence {
  int64_t first_query;  // among the rows of q
  int batch;            // its number
  Divisor group;        // query heads of a KV head
  int first_key;        // in its page
  int page;             // where there is no block_table
  KeyRule rule;

  FLASH_DEVICE Sequence(const ServeArgs& args, int number)
      : Sequence(args, number, group_of(args)) {}
  // First what every call with a cache waits for: used_of().
  FLASH_DEVICE Sequence(const ServeArgs& args, int number, const Divisor& its_group)
      : Sequence(args, number, its_group, used_of(args, number)) {}
  // `used`: used_of(), which the caller has asked for.
  FLASH_DEVICE Sequence(const ServeArgs& args, int number, const Divisor& its_group, int used)
      : batch(number), group(its_group) {
    find_queries(args);
    find_keys(args, used);
  }

  FLASH_DEVICE static Divisor group_of(const ServeArgs& args) {
    return Divisor(static_cast<uint32_t>(args.n_heads_q / args.n_heads_kv));
  }

  // Keys of a sequence of a cache, but for those that are appended.
  FLASH_DEVICE static int used_of(const ServeArgs& args, int number) {
    return args.seqused_k == nullptr ? 0 : args.seqused_k[number];
  }

  FLASH_DEVICE int n_rows() const {
    return static_cast<int>(static_cast<uint32_t>(rule.seqlen_q) * group.divisor);
  }

 private:
  FLASH_DEVICE void find_queries(const ServeArgs& args) {
    rule.seqlen_q = args.seqlen_q;
    first_query = int64_t{batch} * args.seqlen_q;
    if (args.cu_seqlens_q != nullptr) {
      first_query = args.cu_seqlens_q[batch];
      rule.seqlen_q = args.cu_seqlens_q[batch + 1] - args.cu_seqlens_q[batch];
    }
    if (args.seqused_q != nullptr) rule.seqlen_q = min(rule.seqlen_q, args.seqused_q[batch]);
  }

  FLASH_DEVICE void find_keys(const ServeArgs& args, int used) {
    int seqlen_k = args.seqlen_k;
    first_key = 0;
    if (args.cu_seqlens_k != nullptr) {
      const int start = args.cu_seqlens_k[batch];
      seqlen_k = args.cu_seqlens_k[batch + 1] - start;
      if (args.block_table == nullptr) first_key = start;
    }
    if (args.seqused_k != nullptr) seqlen_k = used;
    seqlen_k += args.cu_seqlens_new == nullptr
                    ? args.seqlen_new
                    : args.cu_seqlens_new[batch + 1] - args.cu_seqlens_new[batch];
    page = args.cache_batch_idx == nullptr ? batch : args.cache_batch_idx[batch];
    rule.seqlen_k = max(0, min(seqlen_k, args.seqlen_k - first_key));
    rule.leftpad = args.leftpad_k == nullptr ? 0 : args.leftpad_k[batch];
    rule.left = args.window_left;
    rule.right = args.window_right;
  }
};

// Rows [row, row + n_rows) of a sequence, and a KV head.
template <AmpereServeKernelConfig kConfig>
struct Tile : Sequence {
  int kv_head;
  int row;     // the first
  int n_rows;  // that exist: not more than B_r; none where there is nothing to do

  FLASH_DEVICE Tile(const Sequence& sequence, int head, int first_row)
      : Sequence(sequence),
        kv_head(head),
        row(first_row),
        n_rows(max(0, min(kConfig.B_r, sequence.n_rows() - first_row))) {}

  FLASH_DEVICE int query(int r) const { return static_cast<int>(group.divide(row + r).quotient); }
  FLASH_DEVICE int head(int r) const {
    return static_cast<int>(kv_head * group.divisor + group.divide(row + r).remainder);
  }
};

// The tile of a thread block, where each has one, for one of the splits of its keys. Late queries,
// which see the most keys, come first.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE Tile<kConfig> tile_of(const ServeArgs& args, unsigned block, int lane) {
  const unsigned tiles = n_tiles<kConfig>(args);
  const unsigned tile = tiles - 1 - block % tiles;
  const int kv_head = block / tiles % args.n_heads_kv;
  if (args.cu_seqlens_q == nullptr) {
    const unsigned tiles_each = tiles / args.batch;
    return {Sequence(args, tile / tiles_each), kv_head,
            static_cast<int>(tile % tiles_each) * kConfig.B_r};
  }
  const int batch = sequence_of<kConfig>(args, tile, lane);
  const Sequence sequence(args, max(batch, 0));
  const int64_t before =
      tiles_before<kConfig>(sequence.first_query, sequence.batch, sequence.group.divisor);
  // Rows before the first sequence have no tile.
  return {sequence, kv_head,
          batch < 0 ? sequence.n_rows() : static_cast<int>(tile - before) * kConfig.B_r};
}

// Which part of the keys the thread block takes.
template <AmpereServeKernelConfig kConfig>
FLASH_DEVICE int split_of(const ServeArgs& args, unsigned block) {
  return static_cast<int>(block / n_tiles<kConfig>(args) / args.n_heads_kv);
}

}  // namespace flash::sm80_serve
