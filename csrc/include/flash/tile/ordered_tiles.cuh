// Which keys thread blocks have where they add to the sums of dQ in order, so that these are
// bitwise the same in every run; and the place of each in that order.
//
// Thread blocks begin in the order of the grid, and nobody may wait for one that begins later. Nor
// should anybody wait at all: a block's sums reach the next one about a step after they were made.
//
//   Without a mask thread blocks come in the order of their keys. All go through the queries from
//   the last to the first, each a little behind the one before.
//
//   Causal, the order is: the first half of a head's keys, backwards; then the second half,
//   forwards. Blocks of the first half begin with the queries beside them and go up, so that the
//   one before is always a few steps ahead. Those of the second go down, and come one section
//   later: their predecessors are far ahead, or over. The grid ends with the shortest blocks, and
//   those of one half of a section run at the same time and share what they read in L2.
//
//   Where query heads share keys, each block of queries passes by with all of them before the next
//   one does. Head after head, thread blocks with fewer queries draw ahead with each head, until L2
//   no longer holds what they share. Causal, unless keys are few, all blocks come forwards then and
//   go down: they have so many steps that a late first one is no matter, and meet the same queries
//   a step apart. So they do if all begin at once: nobody should wait for a first half to end.
//   (docs/kernels has other orders, simulated and measured.)
//
// `L` says besides what Work asks for whether sections are wide without a mask (kWideSections), and
// with one, where all blocks come forwards (kWideForwards).
#pragma once

#include "flash/tile/gradient_work.cuh"

namespace flash {

// Where the thread blocks of the grid lie. With A and B for the halves of a section the grid is A0,
// A1, B0, A2, B1 ..., and at last the last B; without a mask all is B. But where tiles have few
// steps, the last block of keys alone is B: it needs the others' sums before it leaves its own, and
// would wait for one block after the other from its first step on.
//
// `heads`: of a batch, KV heads or what stands for them.
template <typename L>
struct OrderedGrid {
  static constexpr unsigned kFewBlocks = 5;
  static constexpr bool kFewSteps = L::kColumns == L::kRows;

  unsigned n_blocks;  // of a head
  unsigned heads_of_batch;
  unsigned n_heads;  // of all batches
  bool causal;
  unsigned early;    // blocks of a head in A
  unsigned section;  // heads

  FLASH_DEVICE OrderedGrid(const BackwardArgs& args, unsigned heads)
      : n_blocks(blocks_of_head(args)),
        heads_of_batch(heads),
        n_heads(heads_of_batch * static_cast<unsigned>(args.batch)),
        causal(args.causal != 0),
        early(causal ? backwards(args, heads)
                     : (kFewSteps && n_blocks <= kFewBlocks ? n_blocks - 1 : 0)),
        section(max((is_wide() ? 2 : 1) * kSectionBlocks / n_blocks, 1u)) {}

  FLASH_DEVICE static unsigned blocks_of_head(const BackwardArgs& args) {
    return Work<L>::own_blocks(args);
  }

  // With a mask: of a head's blocks the first ones, that come backwards.
  FLASH_DEVICE static unsigned backwards(const BackwardArgs& args, unsigned heads) {
    const unsigned n = blocks_of_head(args);
    if (n * heads * static_cast<unsigned>(args.batch) <= kSectionBlocks) return 0;
    return static_cast<unsigned>(args.n_heads_q) == heads || n <= kFewBlocks ? n / 2 : 0;
  }

  FLASH_DEVICE unsigned n_tiles() const { return n_blocks * n_heads; }

  FLASH_DEVICE OwnTile tile(unsigned place) const {
    const unsigned last = (n_heads - 1) / section;
    const unsigned second = (n_blocks - early) * section;  // thread blocks of a whole B
    if (place >= heads_of(0) * early) place += second;     // as if there were a B behind A0
    const unsigned turn = min(place / (n_blocks * section), last);
    unsigned rest = place - turn * n_blocks * section;
    if (rest < heads_of(turn) * early) {
      const unsigned block = rest / heads_of(turn);
      return tile(turn * section + rest % heads_of(turn), causal ? early - 1 - block : block);
    }
    rest -= heads_of(turn) * early;
    const bool ends = rest >= second;
    if (ends) rest -= second;
    const unsigned of = ends ? turn : turn - 1;
    return tile(of * section + rest % heads_of(of), early + rest / heads_of(of));
  }

 private:
  FLASH_DEVICE OwnTile tile(unsigned batch_head, unsigned block) const {
    return {
        .batch = batch_head / heads_of_batch, .head = batch_head % heads_of_batch, .block = block};
  }

  // A section is as many thread blocks as multiprocessors, or twice that: with a mask, so that each
  // half is as many; without one, so that the next in order begins later, where L2 holds more
  // heads.
  FLASH_DEVICE bool is_wide() const {
    return n_blocks > kFewBlocks && (causal ? L::kWideForwards || early > 0 : L::kWideSections);
  }

  FLASH_DEVICE unsigned heads_of(unsigned turn) const {
    return min(section, n_heads - turn * section);
  }
};

// A tile's place in the order.
template <typename L>
struct TileOrder {
  using Grid = OrderedGrid<L>;

  unsigned block;  // of the head's keys
  unsigned half;
  int direction;           // from one to the next: 1 or -1
  int n_rows_before_mask;  // keys that a query sees beyond its own number

  TileOrder() = default;
  FLASH_DEVICE TileOrder(const BackwardArgs& args, const OwnTile& tile, unsigned heads)
      : block(tile.block),
        half(args.causal ? Grid::backwards(args, heads) : 0),
        direction(block < half ? 1 : -1),
        n_rows_before_mask(args.seqlen_k - args.seqlen_q) {}

  // The block of queries that passes by first.
  FLASH_DEVICE int first_of(int begin, int end) const { return block < half ? begin : end - 1; }

  // How many thread blocks add to the sums of a block of queries before this one does. It sees a
  // query, and so do all that have earlier keys.
  FLASH_DEVICE uint32_t number(int queries) const {
    return block < half ? min(half, n_seen(queries)) - 1 - block : block;
  }

 private:
  // How many blocks of keys a block of queries would see if the head had no end, causal.
  FLASH_DEVICE unsigned n_seen(int queries) const {
    const int keys = (queries + 1) * L::kColumns + n_rows_before_mask;
    return static_cast<unsigned>((keys + L::kRows - 1) / L::kRows);
  }
};

}  // namespace flash
