// RowStats of the queries of a thread's scores, read while the matmuls that make the scores are
// still in flight.
#pragma once

#include "flash/ptx/memory.cuh"
#include "flash/ptx/scheduling.cuh"
#include "flash/sm90_bwd/weights.cuh"
#include "flash/tile/static_for.cuh"

namespace flash::sm90_bwd_fused {

// A thread has two columns of every eight, a pair, whose RowStats are 16 bytes.
template <typename L>
struct StatsAhead : sm90_bwd::QueryStats<L> {
  using Base = sm90_bwd::QueryStats<L>;
  using Base::address;
  using Base::Base;
  static constexpr int kPairs = L::kColumns / 8;
  static constexpr int kPairBytes = 8 * int{sizeof(RowStats)};  // from one to the next

  // Of the first pairs.
  template <int kCount>
  FLASH_DEVICE void load(RowStats (&pairs)[kCount][2]) const {
    static_for<0, kCount>([&](auto n) { load_pair(n, pairs[n]); });
  }

  // Calls body(i, RowStats of its query) for every score of the thread. `pairs` begins with the
  // first; where one is used, another is loaded in its place.
  template <int kCount, typename Body>
  FLASH_DEVICE void for_each(RowStats (&pairs)[kCount][2], Body&& body) const {
    static_for<0, kPairs>([&](auto n) {
      constexpr int kPair = n;
      RowStats(&place)[2] = pairs[kPair % kCount];
      const RowStats stats[2] = {place[0], place[1]};
      if constexpr (kPair + kCount < kPairs) load_pair(kPair + kCount, place);
#pragma unroll
      for (int i = 0; i < 4; ++i) body(kPair * 4 + i, stats[i % 2]);
      // Or ptxas loads all of them before it uses the first.
      if constexpr (kPair % 4 == 3 && kPair + 1 < kPairs) ptx::schedule_fence();
    });
  }

  // One of the two numbers alone, of the first pairs: two values each.
  template <int kCount>
  FLASH_DEVICE void load_lse_log2(float (&values)[kCount]) const {
    load_words<0>(values);
  }
  template <int kCount>
  FLASH_DEVICE void load_dots(float (&values)[kCount]) const {
    load_words<1>(values);
  }

  // Calls body(i, one number of its query) for every score of the thread. `first`: of the first
  // pairs.
  template <int kCount, typename Body>
  FLASH_DEVICE void for_each_lse_log2(const float (&first)[kCount], Body&& body) const {
    for_each_word(first, [](const RowStats& row) { return row.lse_log2; }, body);
  }
  template <int kCount, typename Body>
  FLASH_DEVICE void for_each_dot(const float (&first)[kCount], Body&& body) const {
    for_each_word(first, [](const RowStats& row) { return row.dot; }, body);
  }

 private:
  FLASH_DEVICE void load_pair(int n, RowStats (&pair)[2]) const {
    const ptx::Vector16 words = ptx::ld_shared_16<0>(address + n * kPairBytes);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pair[i] = {__uint_as_float(words.word[i * 2]), __uint_as_float(words.word[i * 2 + 1])};
    }
  }

  template <int kCount, typename Word, typename Body>
  FLASH_DEVICE void for_each_word(const float (&first)[kCount], Word&& word, Body&& body) const {
    static_for<0, kPairs>([&](auto n) {
      constexpr int kPair = n;
      float words[2];
      if constexpr (kPair * 2 < kCount) {
        words[0] = first[kPair * 2];
        words[1] = first[kPair * 2 + 1];
      } else {
        RowStats pair[2];
        load_pair(kPair, pair);
        words[0] = word(pair[0]);
        words[1] = word(pair[1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) body(kPair * 4 + i, words[i % 2]);
      // As above; eight pairs have the registers.
      if constexpr (kPairs > 8 && kPair % 4 == 3 && kPair + 1 < kPairs) ptx::schedule_fence();
    });
  }

  template <int kWord, int kCount>
  FLASH_DEVICE void load_words(float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = __uint_as_float(ptx::ld_shared_4(address + i / 2 * kPairBytes +
                                                   i % 2 * int{sizeof(RowStats)} + kWord * 4));
    }
  }
};

}  // namespace flash::sm90_bwd_fused
