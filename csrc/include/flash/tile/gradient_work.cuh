// Which part of a backward pass a thread block computes: its own rows, and the blocks that pass by.
//
// `L` says how the family lays its blocks out: kOwnsKeys (rows are keys and queries pass by; else
// the other way round), kRows that stay, kColumns of a block that passes by; kSectionBlocks of a
// section where one head has fewer; kStaggers: thread
// blocks of a head begin with different blocks, each with that beside its own rows; and kInOrder:
// its Work says in which direction blocks pass by, each of all query heads of the group before the
// next, else a head's last before the next head's first.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/tile/visible.cuh"

namespace flash {

// Heads whose row blocks are launched in turns are a section, of so many blocks where one head has
// fewer: one for each multiprocessor, and for 128 rows of 128 elements 17 MB that pass by.
constexpr unsigned kSectionBlocks = 128;

// Rows that stay: a block of a head of a batch.
struct OwnTile {
  unsigned batch;
  unsigned head;
  unsigned block;
};

// The grid is one-dimensional (no 65,535 limit on batch or heads): row blocks fastest, so that
// blocks that read the same tensors run side by side, then heads, then the batch. Causal, where
// blocks have different work, sections come one after the other, and in each the blocks with the
// most work come first: else the last heads' longest blocks would begin last, and run alone.
template <typename L>
struct Work {
  using Layout = L;

  int64_t batch;
  int64_t head;  // of K and V where keys are the rows, else of Q
  int first_row;
  int n_rows;   // that exist, from first_row on: may be more than a block has
  int begin;    // the first block that passes by
  int end;      // the block after the last
  int first;    // the one that a head begins with; its last is the one before, begin follows end
  int n_heads;  // how often they pass by: once for each query head of the group

  Work() = default;
  FLASH_DEVICE Work(const BackwardArgs& args, unsigned block) : Work(args, tile(args, block)) {}

  // That of a thread block of the grid.
  FLASH_DEVICE static OwnTile tile(const BackwardArgs& args, unsigned block) {
    const unsigned n_blocks = own_blocks(args);
    const unsigned heads = args.causal ? max(L::kSectionBlocks / n_blocks, 1u) : 1;
    const unsigned first_head = block / (heads * n_blocks) * heads;
    const unsigned turn = block % (heads * n_blocks);
    const unsigned n_turns =
        min(heads, static_cast<unsigned>(own_heads(args)) * static_cast<unsigned>(args.batch) -
                       first_head);
    unsigned own_block = turn / n_turns;
    if (!L::kOwnsKeys && args.causal) own_block = n_blocks - 1 - own_block;
    const unsigned batch_head = first_head + turn % n_turns;
    const unsigned n_heads_of_rows = static_cast<unsigned>(own_heads(args));
    return {.batch = batch_head / n_heads_of_rows,
            .head = batch_head % n_heads_of_rows,
            .block = own_block};
  }

  FLASH_DEVICE Work(const BackwardArgs& args, const OwnTile& tile) {
    set(args, tile.batch, tile.head, tile.block);
  }

  // Of a head.
  FLASH_DEVICE static unsigned own_blocks(const BackwardArgs& args) {
    return (static_cast<unsigned>(own_length(args)) + L::kRows - 1) / L::kRows;
  }

  FLASH_DEVICE int n_steps() const { return max(end - begin, 0) * n_heads; }

  // Of the tensors whose rows stay.
  FLASH_DEVICE int64_t own_head() const { return head; }

 private:
  FLASH_DEVICE static int own_length(const BackwardArgs& args) {
    return L::kOwnsKeys ? args.seqlen_k : args.seqlen_q;
  }
  FLASH_DEVICE static int own_heads(const BackwardArgs& args) {
    return L::kOwnsKeys ? args.n_heads_kv : args.n_heads_q;
  }

  FLASH_DEVICE void set(const BackwardArgs& args, unsigned own_batch, unsigned own_head,
                        unsigned own_block) {
    head = own_head;
    batch = own_batch;
    first_row = static_cast<int>(own_block * L::kRows);
    n_rows = own_length(args) - first_row;
    n_heads = L::kOwnsKeys ? args.n_heads_q / args.n_heads_kv : 1;
    set_range(args);
  }

  // Blocks of which something is visible from the block's own rows.
  FLASH_DEVICE void set_range(const BackwardArgs& args) {
    begin = 0;
    unsigned n_columns = L::kOwnsKeys ? args.seqlen_q : args.seqlen_k;
    if (args.causal) {
      if constexpr (L::kOwnsKeys) {
        begin = max(0, first_row - args.seqlen_k + args.seqlen_q) / L::kColumns;
      } else {
        n_columns = n_visible_keys(args, first_row + min(n_rows, L::kRows) - 1);
      }
    }
    end = static_cast<int>((n_columns + L::kColumns - 1) / L::kColumns);
    first = begin;
    if constexpr (L::kStaggers) {
      if (!args.causal && end > 0) first = first_row / L::kColumns % end;
    }
  }
};

// A place among the blocks that pass by.
struct Place {
  int block;
  int head;  // of the group

  template <typename Own>  // a Work
  FLASH_DEVICE void advance(const Own& work) {
    if constexpr (Own::Layout::kInOrder) {
      const bool is_last = head == work.n_heads - 1;
      head = is_last ? 0 : head + 1;
      block += is_last ? work.direction : 0;
    } else if constexpr (Own::Layout::kStaggers) {
      if (++block == work.end) block = work.begin;
      if (block == work.first) ++head;
    } else {
      if (++block < work.end) return;
      block = work.begin;
      ++head;
    }
  }
  // Whether it lies behind the last one.
  template <typename Own>
  FLASH_DEVICE bool is_behind(const Own& work) const {
    if constexpr (Own::Layout::kInOrder) return block < work.begin || block >= work.end;
    return head >= work.n_heads;
  }
};

// Which scores of kRows x kColumns are those of keys that the query does not see.
template <bool kOwnsKeys, int kRows, int kColumns>
struct BlockMask {
  int first_query;
  int first_key;
  bool hides_something;  // of the first query, which sees the least

  FLASH_DEVICE BlockMask(const BackwardArgs& args, int first_row, int first_column)
      : first_query(kOwnsKeys ? first_column : first_row),
        first_key(kOwnsKeys ? first_row : first_column) {
    const int end = first_key + (kOwnsKeys ? kRows : kColumns);
    hides_something = end > args.seqlen_k || (args.causal && keys_by_mask(args, first_query) < end);
  }

  // Of a thread whose first score is at `row` and `column` of the block.
  struct Seen {
    VisibleKeys visible;

    // The score that is so many rows below the first, and so many columns to its right.
    FLASH_DEVICE bool at(int down, int right) const {
      return kOwnsKeys ? down < visible.of_row(right) : right < visible.of_row(down);
    }
  };

  FLASH_DEVICE Seen seen(const BackwardArgs& args, int row, int column) const {
    return {VisibleKeys(args, first_query + (kOwnsKeys ? column : row),
                        first_key + (kOwnsKeys ? row : column))};
  }
};

}  // namespace flash
