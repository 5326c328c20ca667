// A tile as one group of consumers sees it, and which keys its rows see.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/ptx/math.cuh"
#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90/mask.cuh"
#include "flash/sm90_serve/config.h"
#include "flash/sm90_serve/packing.cuh"
#include "flash/tile/key_range.cuh"
#include "flash/tile/rows.cuh"

namespace flash::sm90_serve {

// What consumers are told of a tile, in shared memory.
enum TileWord : int {
  kRow,    // the tile's first query, may be negative; kNoTile: no tile is left
  kBegin,  // blocks of keys of which some row sees something
  kEnd,
  kSeqlenQ,  // of the sequence, as in KeyRule
  kSeqlenK,
  kLeftpad,
  kHead,
  kQStart,  // the sequence's first row of q, counted from batch kQBatch
  kQBatch,
  kTileWords
};

// In place of a tile's first row: below all of them.
inline constexpr int kNoTile = -(1 << 30);

// By a whole warp. One lane reads, the one that releases the buffer; the maximum tells the compiler
// that all lanes have the same, as in the forward pass.
FLASH_DEVICE int tile_word(uint32_t tile, TileWord word, int lane) {
  int value = kNoTile;
  if (lane == 0) value = ptx::ld_shared_4(tile + 4 * word);
  return __reduce_max_sync(0xffffffffu, value);
}

// A tile as one group sees it; blocks of keys are counted from the sequence's first, and the last
// comes first. What the inner loop does not need stays in shared memory.
struct Work {
  uint32_t tile;  // where its words are
  int q_buffer;
  int row;    // the group's first query, in the sequence
  int begin;  // blocks of which some row of the group sees something
  int end;
  int whole_begin;  // those that all rows see whole; none where it is not before the end
  int whole_end;
  int n_skipped;   // blocks behind the group's, which only other groups' rows see
  int n_left;      // the same before the group's
  int middle_end;  // the end of the keys that the group's middle row sees
};

template <HopperServeKernelConfig kConfig>
struct Mask {
  using Work = sm90_serve::Work;
  static constexpr int kBlockN = kConfig.block_n;

  const ServeKernelArgs& args;

  FLASH_DEVICE KeyRule rule(uint32_t tile, int lane) const {
    return {tile_word(tile, kSeqlenQ, lane), tile_word(tile, kSeqlenK, lane),
            tile_word(tile, kLeftpad, lane), args.call.window_left, args.call.window_right};
  }

  // Caps scores, and gives those of keys that a row does not see the value -inf. `warp`: of the
  // group.
  template <int kCount>
  FLASH_DEVICE void apply(float (&s)[kCount], const Work& work, int block, int warp,
                          int lane) const {
    if (args.call.softcap != 0.0f) cap(s);
    if (work.whole_begin <= block && block < work.whole_end) return;
    const KeyRule keys_of = rule(work.tile, lane);
    int begin[2], end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = work.row + Packing<kConfig>::query(args, warp * 16 + lane / 4 + 8 * half);
      // Those behind the end see what the last one sees: nobody looks at them.
      const KeyRange keys = keys_of.of(min(query, keys_of.seqlen_q - 1));
      begin[half] = keys.begin - block * kBlockN;
      end[half] = keys.end - block * kBlockN;
    }
    if (block >= work.whole_end) sm90::mask_scores(s, end, lane);
    if (block < work.whole_begin) hide_before(s, begin, lane);
  }

  // tanh(x) = 1 - 2 / (1 + exp(2 x)), exact to a few units of fp32 at 1. The softmax scales what it
  // is given.
  template <int kCount>
  FLASH_DEVICE void cap(float (&s)[kCount]) const {
    const ServeArgs& call = args.call;
    const float tanh_scale = 2.0f * kLog2e * call.softmax_scale * ptx::rcp(call.softcap);
    const float limit = call.softcap * ptx::rcp(call.softmax_scale);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = fmaf(-2.0f * limit, ptx::rcp(1.0f + ptx::ex2(s[i] * tanh_scale)), limit);
    }
  }

  // Scores within the cap become exponents of 2, with what the softmax scales by and adds to each
  // of the thread's two rows, and without special functions, of which the softmax alone has enough.
  // Factors come out of constant memory, where an FFMA reads them. True: one was beyond, or a NaN,
  // and this thread's are of no use.
  template <int kCount>
  FLASH_DEVICE bool cap_small(float (&s)[kCount], const float (&offset)[2]) const {
    // Left alone, ptxas works on so many at once that kernels spill: 16 do at 256. Measured: 4 for
    // three groups.
    constexpr int kAtOnce = kConfig.d_head > 128 ? 8 : 4;
    // Where the polynomial begins, an FFMA would need two constants. What is the same in all lanes
    // ptxas moves to a register anew for every score; this comes of a score, and is the same.
    const float last = ptx::fma_rn(s[0], 0.0f, args.cap.factors[SoftCap::kFactors - 1]);
    int largest = 0;  // squares are not negative, and compare as integers do
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      if (i % kAtOnce == 0) ptx::schedule_fence();
      const float squares[2] = {s[i] * s[i], s[i + 1] * s[i + 1]};
      largest = max(max(largest, __float_as_int(squares[0])), __float_as_int(squares[1]));
      s[i] = ptx::fma_rn(s[i], capped_ratio(squares[0], last), offset[i / 2 % 2]);
      s[i + 1] = ptx::fma_rn(s[i + 1], capped_ratio(squares[1], last), offset[i / 2 % 2]);
    }
    return largest > __float_as_int(args.cap.limit);
  }

  // Keys from the first of `block` on that the group's middle row sees.
  FLASH_DEVICE int n_keys_from(const Work& work, int block) const {
    return work.middle_end - block * kBlockN;
  }

 private:
  // Of a score whose square this is, its exponent of 2 once it is capped, for each unit of it.
  FLASH_DEVICE float capped_ratio(float square, float last_factor) const {
    float ratio = last_factor;
#pragma unroll
    for (int i = SoftCap::kFactors - 2; i >= 0; --i) {
      ratio = ptx::fma_rn(ratio, square, args.cap.factors[i]);
    }
    return ratio;
  }

  // `begin`: of each of the thread's two rows, the first key that it sees, as sm90::mask_scores.
  template <int kCount>
  FLASH_DEVICE static void hide_before(float (&s)[kCount], const int (&begin)[2], int lane) {
    const int column = 2 * (lane % 4);
    const int first[2] = {begin[0] - column, begin[1] - column};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = kNegativeInfinity;
    }
  }
};

}  // namespace flash::sm90_serve
