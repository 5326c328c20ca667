// Which keys a thread block computes, where all of a launch share the keys of the whole call.
//
// The keys that a tile's sequence sees are cut into units. Units of all tiles, one tile after the
// other, are dealt out in equal, consecutive shares: a thread block's share ends or begins in the
// middle of a tile, or lies in one. So every multiprocessor reads as much as any other, whatever
// the lengths are, which the device alone knows.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

constexpr int kUnitKeys = 32;

// The units of a sequence.
template <AmpereServeKernelConfig kConfig>
struct Units {
  int tiles;  // of one KV head
  int first;  // of the first key that some query sees
  int each;   // of a tile; at least one, with which its rows are written

  FLASH_DEVICE explicit Units(const Sequence& sequence) {
    tiles = (max(sequence.n_rows(), 0) + kConfig.B_r - 1) / kConfig.B_r;
    const int begin = sequence.rule.of(0).begin;
    const int end = sequence.rule.of(sequence.rule.seqlen_q - 1).end;
    first = begin / kUnitKeys;
    each = max(1, (end + kUnitKeys - 1) / kUnitKeys - first);
  }
  FLASH_DEVICE int64_t all(const ServeArgs& args) const {
    return int64_t{tiles} * args.n_heads_kv * each;
  }
};

FLASH_DEVICE int64_t warp_sum(int64_t x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// Sum of this lane's number and of those of the lanes before.
FLASH_DEVICE int64_t warp_running_sum(int64_t x, int lane) {
#pragma unroll
  for (int i = 1; i < 32; i *= 2) {
    const int64_t before = __shfl_up_sync(0xffffffffu, x, i);
    x += lane >= i ? before : 0;
  }
  return x;
}

// The share of this thread block, found by all lanes of a warp.
template <AmpereServeKernelConfig kConfig>
struct Share {
  int64_t each;        // units of a share
  int64_t begin, end;  // units of this one
  int batch;           // the sequence in which it begins
  int64_t before;      // units before that sequence

  FLASH_DEVICE Share(const ServeArgs& args, int lane) : batch(0), before(0) {
    int64_t units = 0;  // of the sequence that this lane looked at last
    int64_t mine = 0;
    int tile = 0;  // of the sequence that this lane looked at first
    // A sequence is looked at in as few places as can be: each is some 150 instructions, and a
    // short call takes longer to fetch them than to run them.
    for (int b = lane; b < (args.batch + 31) / 32 * 32; b += 32) {
      const Units<kConfig> found(Sequence(args, min(b, args.batch - 1)));
      units = b < args.batch ? found.all(args) : 0;
      if (b == lane) tile = found.each;
      mine += units;
    }
    const int64_t total = warp_sum(mine);
    each = max(int64_t{1}, (total + gridDim.x - 1) / gridDim.x);
    end_with_tiles(__shfl_sync(0xffffffffu, tile, 0));
    begin = min(blockIdx.x * each, total);
    end = min(begin + each, total);
    if (begin == end) return;
    for (int b = lane;; b += 32) {
      if (args.batch > 32) units = units_of(args, b);
      const int64_t up_to = before + warp_running_sum(units, lane);
      const int passed = __popc(__ballot_sync(0xffffffffu, up_to <= begin));  // lanes
      const int found = min(passed, 31);
      before = __shfl_sync(0xffffffffu, passed == 32 ? up_to : up_to - units, found);
      batch = __shfl_sync(0xffffffffu, b, found);
      if (passed < 32) return;
    }
  }

 private:
  // Makes shares end with tiles of as many units, where they grow little by it: what is cut has to
  // be merged.
  FLASH_DEVICE void end_with_tiles(unsigned tile) {
    constexpr unsigned kMost = 32;  // of a share: what it may grow by
    const auto share = static_cast<unsigned>(each);
    const unsigned missing = tile - 1 - (share - 1) % tile;
    if (each == share && missing <= share / kMost) each += missing;
  }

  FLASH_DEVICE static int64_t units_of(const ServeArgs& args, int b) {
    return b < args.batch ? Units<kConfig>(Sequence(args, b)).all(args) : 0;
  }
};

// What a thread block computes of a tile.
template <AmpereServeKernelConfig kConfig>
struct Piece {
  Tile<kConfig> tile;
  KeyRange keys;       // that some row sees
  int64_t first_unit;  // of the tile
  int tile_units;
  bool is_whole;

  // Those of `keys` that all rows see.
  FLASH_DEVICE KeyRange seen_by_all() const {
    return KeyRange{tile.rule.of(tile.query(tile.n_rows - 1)).begin,
                    tile.rule.of(tile.query(0)).end}
        .within(keys);
  }
};

// The pieces of a share, one after the other.
template <AmpereServeKernelConfig kConfig>
class Pieces {
 public:
  FLASH_DEVICE explicit Pieces(const Share<kConfig>& share)
      : Pieces(share.begin, share.end, share.batch, share.before) {}
  // Units [begin, end), of sequence `batch` and those behind it, of which the first is `before`.
  FLASH_DEVICE Pieces(int64_t begin, int64_t end, int batch, int64_t before)
      : at_(begin), end_(end), batch_(batch), before_(before) {}

  FLASH_DEVICE bool is_at_end() const { return at_ == end_; }

  // There is one.
  FLASH_DEVICE Piece<kConfig> next(const ServeArgs& args) {
    for (;; ++batch_) {
      const Sequence sequence(args, batch_);
      const Units<kConfig> units(sequence);
      const int64_t all = units.all(args);
      if (at_ - before_ < all) return of(sequence, units);
      before_ += all;  // the sequence ends, or has no rows
    }
  }

 private:
  FLASH_DEVICE Piece<kConfig> of(const Sequence& sequence, const Units<kConfig>& units) {
    // Those of a KV head follow each other.
    const int tile = static_cast<int>((at_ - before_) / units.each);
    const int64_t first_unit = before_ + int64_t{tile} * units.each;
    const int skipped = static_cast<int>(at_ - first_unit);
    const int taken = static_cast<int>(min(int64_t{units.each - skipped}, end_ - at_));
    at_ += taken;
    const int kv_head = tile / units.tiles;
    const Tile<kConfig> rows(sequence, kv_head, (tile - kv_head * units.tiles) * kConfig.B_r);
    const KeyRange seen = {rows.rule.of(rows.query(0)).begin,
                           rows.rule.of(rows.query(rows.n_rows - 1)).end};
    const int from = (units.first + skipped) * kUnitKeys;
    // The last unit may end behind the largest int.
    const int to = taken == units.each - skipped ? seen.end : from + taken * kUnitKeys;
    return {rows, seen.within({from, to}), first_unit, units.each, taken == units.each};
  }

  int64_t at_, end_;
  int batch_;
  int64_t before_;
};

}  // namespace flash::sm80_serve
