// Which keys a thread block computes, where all of a launch share the keys of the whole call.
//
// The keys that a tile's sequence sees are cut into units. Units of all tiles, one tile after the
// other, are dealt out in equal, consecutive shares: a thread block's share ends or begins in the
// middle of a tile, or lies in one. So every multiprocessor reads as much as any other, whatever
// the lengths are, which the device alone knows.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm80_serve/abreast.cuh"
#include "flash/sm80_serve/config.h"
#include "flash/sm80_serve/tile.cuh"

namespace flash::sm80_serve {

constexpr int kUnitKeys = 32;

// The units of a sequence, for one of the thread blocks abreast.
template <AmpereServeKernelConfig kConfig>
struct Units {
  int tiles;  // of one KV head
  int first;  // of the first key that some query sees
  int each;   // of a tile; at least one, with which its rows are written

  template <typename ItsAbreast = Abreast>
  FLASH_DEVICE explicit Units(const Sequence& sequence, const ItsAbreast& abreast = {}) {
    tiles = abreast.n_tiles((max(sequence.n_rows(), 0) + kConfig.B_r - 1) / kConfig.B_r);
    const int begin = sequence.rule.of(0).begin;
    const int end = sequence.rule.of(sequence.rule.seqlen_q - 1).end;
    first = begin / kUnitKeys;
    each = max(1, (end + kUnitKeys - 1) / kUnitKeys - first);
  }
  template <typename ItsAbreast>
  FLASH_DEVICE UnitCount all(const ServeArgs& args, const ItsAbreast& abreast) const {
    return static_cast<UnitCount>(tiles * abreast.n_heads(args) * each);
  }
};

// Sum of this lane's number and of those of the lanes before.
FLASH_DEVICE UnitCount warp_running_sum(UnitCount x, int lane) {
#pragma unroll
  for (int i = 1; i < 32; i *= 2) {
    const UnitCount before = __shfl_up_sync(0xffffffffu, x, i);
    x += lane >= i ? before : 0;
  }
  return x;
}

// By words: assigned as they are, such structures were stored by bytes.
template <typename T>
FLASH_DEVICE void store_words(T* to, const T& from) {
  auto* const words = reinterpret_cast<uint32_t*>(to);
#pragma unroll
  for (unsigned i = 0; i < sizeof(from) / 4; ++i) {
    uint32_t word;
    memcpy(&word, reinterpret_cast<const char*>(&from) + 4 * i, 4);
    words[i] = word;
  }
}

// Warps of a thread block that look at many sequences together: each at some of them.
struct Team {
  struct Count {
    UnitCount units;
    UnitCount tile;  // units of a tile of the first sequence
  };

  int warp = 0;  // this one
  int n_warps = 1;
  Count* counts = nullptr;  // of each warp, in shared memory; all have read them before their next
                            // __syncthreads()

  FLASH_DEVICE bool works_together(const ServeArgs& args) const {
    return n_warps > 1 && args.batch > 32;
  }
  // Sequences for a warp.
  FLASH_DEVICE int n_each(const ServeArgs& args) const {
    const int all_at_once = 32 * n_warps;  // a constant, by which it is quick to divide
    return works_together(args) ? (args.batch + all_at_once - 1) / all_at_once * 32 : args.batch;
  }
  FLASH_DEVICE int first(const ServeArgs& args) const {
    return works_together(args) ? warp * n_each(args) : 0;
  }
  // Sequence::used_of() the first sequence that a lane looks at.
  FLASH_DEVICE int first_used(const ServeArgs& args, int lane) const {
    return Sequence::used_of(args, min(first(args) + lane, args.batch - 1));
  }
};

// The share of this thread block, found by all lanes of each warp.
template <AmpereServeKernelConfig kConfig>
struct Share {
  UnitCount each;        // units of a share
  UnitCount begin, end;  // units of this one
  int batch;             // the sequence in which it begins
  UnitCount before;      // units before that sequence

  // `kept`: receives the sequence in which it begins. `used`: the team's first_used(), if it was
  // asked for.
  template <typename ItsAbreast = Abreast>
  FLASH_DEVICE Share(const ServeArgs& args, int lane, const Team& team = {},
                     const ItsAbreast& abreast = {}, Sequence* kept = nullptr,
                     const int* used = nullptr)
      : batch(0), before(0) {
    const bool together = team.works_together(args);
    const int n_warps = together ? team.n_warps : 1;
    const int n_each = team.n_each(args);
    const int from = team.first(args);
    Team::Count mine = {0, 0};
    bool counts = true;
    int first = from;  // sequences are looked at by 32
    // First units are counted, then the share's sequence is found, by the same code: a sequence is
    // some 150 instructions, and a short call takes longer to fetch them than to run them.
    // Lengths of the first sequences are asked for before all else, and what does not depend on
    // them is computed while they come: nothing can be copied before.
    Divisor group = Sequence::group_of(args);
    ptx::forget(group.divisor);
    ptx::forget(group.inverse);
#pragma unroll 1
    for (int its_used = used != nullptr ? *used : team.first_used(args, lane);;
         its_used = Sequence::used_of(args, min(first + lane, args.batch - 1))) {
      const int b = first + lane;
      const Sequence sequence(args, min(b, args.batch - 1), group, its_used);
      const Units<kConfig> found(sequence, abreast);
      const UnitCount units = b < args.batch ? found.all(args, abreast) : 0;
      const UnitCount so_far =
          args.batch == 1 ? found.all(args, abreast) : warp_running_sum(units, lane);
      if (counts) {
        mine.units += __shfl_sync(0xffffffffu, so_far, 31);
        if (first == from) mine.tile = found.each;
        first += 32;
        // By votes, so that the compiler knows that lanes stay together.
        if (__any_sync(0xffffffffu, first < min(from + n_each, args.batch))) continue;
        counts = false;
        first = 0;
        Team::Count all = {mine.units, __shfl_sync(0xffffffffu, mine.tile, 0)};
        UnitCount up_to = 0;
        Team::Count its = all;  // lane's
        if (together) {
          if (lane == 0) team.counts[team.warp] = all;
          __syncthreads();  // all warps have counted
          its = lane < n_warps ? team.counts[lane] : Team::Count{0, 0};
          up_to = warp_running_sum(its.units, lane);
          all = {__shfl_sync(0xffffffffu, up_to, 31), __shfl_sync(0xffffffffu, its.tile, 0)};
        }
        deal(all, abreast);
        if (together) {
          const int passed = __popc(__ballot_sync(0xffffffffu, up_to <= begin)) % 32;  // warps
          before = __shfl_sync(0xffffffffu, up_to - its.units, passed);
          first = passed * n_each;
        }
        if (__all_sync(0xffffffffu, begin == end)) return;
        if (args.batch > 32) continue;
      }
      const UnitCount up_to = before + so_far;
      const int passed = __popc(__ballot_sync(0xffffffffu, up_to <= begin));  // lanes
      const int last = min(passed, 31);
      before = __shfl_sync(0xffffffffu, passed == 32 ? up_to : up_to - units, last);
      batch = first + last;
      if (passed < 32) {
        if (kept != nullptr && lane == last) store_words(kept, sequence);
        return;
      }
      first += 32;
    }
  }

 private:
  // Shares end with tiles of as many units as the first sequence's, or tiles with shares where all
  // have as many, if shares grow little by it: what is cut has to be merged.
  template <typename ItsAbreast>
  FLASH_DEVICE void deal(const Team::Count& all, const ItsAbreast& abreast) {
    constexpr UnitCount kMost = 32;  // of a share: what it may grow by
    // Tiles are not cut into less than a block: it would be read no sooner, and leave more parts.
    constexpr UnitCount kBlock = kConfig.B_c / kUnitKeys;
    each = max(min(kBlock, all.tile), (all.units + abreast.n_shares() - 1) / abreast.n_shares());
    if (each >= kMost && each != all.tile) {  // else they cannot grow, or end together
      const bool cuts = each < all.tile;
      const UnitCount n = (cuts ? all.tile : each + all.tile - 1) / (cuts ? each : all.tile);
      const UnitCount aligned = cuts ? quotient(all.tile, n) : n * all.tile;
      const bool fits = !cuts || (is_multiple(all.tile, n) && is_multiple(all.units, all.tile));
      if (fits && aligned - each <= each / kMost) each = aligned;
    }
    begin = min(abreast.share() * each, all.units);
    end = min(begin + each, all.units);
  }
};

// What a thread block computes of a tile.
template <AmpereServeKernelConfig kConfig>
struct Piece {
  Tile<kConfig> tile;
  KeyRange keys;         // that some row sees
  UnitCount first_unit;  // of the tile
  UnitCount tile_units;
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
  FLASH_DEVICE Pieces(UnitCount begin, UnitCount end, int batch, UnitCount before)
      : at_(begin), end_(end), batch_(batch), before_(before) {}

  FLASH_DEVICE bool is_at_end() const { return at_ == end_; }

  // There is one. `last`: the sequence of the one before, if the caller has it: asked for again,
  // its lengths would come behind keys that are on their way.
  template <typename ItsAbreast = Abreast>
  FLASH_DEVICE Piece<kConfig> next(const ServeArgs& args, const ItsAbreast& abreast = {},
                                   const Sequence* last = nullptr) {
    for (;; ++batch_) {
      const Sequence sequence = last == nullptr         ? Sequence(args, batch_)
                                : last->batch == batch_ ? *last
                                                        : Sequence(args, batch_, last->group);
      const Units<kConfig> units(sequence, abreast);
      const UnitCount all = units.all(args, abreast);
      if (at_ - before_ < all) return of(args, sequence, units, all, abreast);
      before_ += all;  // the sequence ends, or has no rows
    }
  }

 private:
  template <typename ItsAbreast>
  FLASH_DEVICE Piece<kConfig> of(const ServeArgs& args, const Sequence& sequence,
                                 const Units<kConfig>& units, UnitCount all,
                                 const ItsAbreast& abreast) {
    // Those of a KV head follow each other. Few calls have more than one here: others need not
    // wait for a division.
    const auto each = static_cast<UnitCount>(units.each);
    const UnitCount tile = all == each ? 0 : (at_ - before_) / each;
    const UnitCount first_unit = before_ + tile * each;
    const UnitCount skipped = at_ - first_unit;
    const UnitCount taken = min(each - skipped, end_ - at_);
    at_ += taken;
    const UnitCount head =
        abreast.n_heads(args) == 1 ? 0 : tile / static_cast<UnitCount>(units.tiles);
    const UnitCount row = (tile - head * units.tiles + abreast.first_tile()) * kConfig.B_r;
    const Tile<kConfig> rows(sequence, static_cast<int>(head + abreast.first_head()),
                             static_cast<int>(row));
    const KeyRange seen = {rows.rule.of(rows.query(0)).begin,
                           rows.rule.of(rows.query(rows.n_rows - 1)).end};
    const int from = (units.first + static_cast<int>(skipped)) * kUnitKeys;
    // The last unit may end behind the largest int.
    const int to = skipped + taken == each ? seen.end : from + static_cast<int>(taken) * kUnitKeys;
    return {rows, seen.within({from, to}), first_unit, each, taken == each};
  }

  UnitCount at_, end_;
  int batch_;
  UnitCount before_;
};

}  // namespace flash::sm80_serve
