// Who does, for each query, what the kernels around the large one are for: RowStats and zeros for
// its sums of dQ before, and dQ of these behind.
//
// Sections are KV heads with all their pairs of thread blocks, in the order of the grid
// (flash/tile/gradient_work.cuh). What a section needs before is done by warps of the large kernel
// that have nothing else to do, `lead` sections earlier, and what it needs behind as many later: by
// then GPUs, which begin clusters in that order, have ended those that are waited for. The first
// `lead` sections are prepared by the kernel before, and the last are rounded by the one behind.
//
// Plain C++20 (no CUDA), as config.h: the launcher asks it, too.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/sm90_bwd_cluster/config.h"

namespace flash::sm90_bwd_cluster {

struct HeadSections {
  // Pairs of a head: fewer have too few steps for all of its queries, above all with a mask.
  static constexpr unsigned least_pairs(bool causal) { return causal ? 32 : 8; }
  // Of sums that are cleared, added to or not rounded yet: more would not stay in L2.
  static constexpr int64_t kMostBytes = 34 << 20;

  unsigned pairs;         // of thread blocks, of a section; the last one may have fewer
  unsigned workers;       // those of them that do it, the first ones
  unsigned heads;         // of queries, likewise
  unsigned n_heads;       // of queries, in all batches
  unsigned rows_of_head;  // of RowStats and of sums
  unsigned count;
  unsigned lead;

  // A section's query heads: the first, and the one behind the last.
  constexpr unsigned first_head(unsigned section) const { return section * heads; }
  constexpr unsigned end_head(unsigned section) const {
    const unsigned end = first_head(section + 1);
    return end < n_heads ? end : n_heads;
  }
  constexpr unsigned n_whole() const { return n_heads / heads; }
  // What the kernel before prepares, and the first that the one behind rounds.
  constexpr unsigned prepared_before() const { return lead == count ? n_heads : first_head(lead); }
  constexpr unsigned rounded_behind() const {
    return n_whole() > lead ? first_head(n_whole() - lead) : 0;
  }
  // Whether a section's thread blocks round the one that is `lead` before it.
  constexpr bool rounds(unsigned section) const { return section >= lead && section < n_whole(); }
};

constexpr HeadSections sections_of(const ClusterBackwardKernelConfig& config,
                                   const BackwardArgs& args) {
  const auto quotient = [](unsigned a, unsigned b) { return (a + b - 1) / b; };
  const unsigned keys = static_cast<unsigned>(config.kBlocks * config.keys_rows);
  const unsigned pairs = quotient(static_cast<unsigned>(args.seqlen_k), keys);  // of a head
  const unsigned together = args.causal == 0 || pairs == 0 ? 1 : config.section_blocks() / pairs;
  const unsigned kv_heads = together > 1 ? together : 1;  // of a section
  const unsigned group = static_cast<unsigned>(args.n_heads_q / args.n_heads_kv);
  const unsigned n_heads =
      static_cast<unsigned>(args.n_heads_q) * static_cast<unsigned>(args.batch);
  const unsigned wave = static_cast<unsigned>(config.wave_pairs);
  const unsigned count = quotient(n_heads, kv_heads * group);
  const int64_t rows_of_head = row_stats_rows(args.seqlen_q, config.stats_block());
  const int64_t section_bytes =
      int64_t{kv_heads * group} * rows_of_head * config.d_head * int64_t{sizeof(float)};
  unsigned lead = count;
  if (wave > 0 && pairs >= HeadSections::least_pairs(args.causal != 0)) {
    // With a mask the first pairs that end, which are the last of a section, end soon.
    const unsigned enough = quotient(wave, kv_heads * pairs) + (args.causal != 0 ? 1 : 0);
    const bool fits = (2 * enough + 1) * section_bytes <= HeadSections::kMostBytes;
    if (fits && enough < count) lead = enough;
  }
  // With a mask the first pairs have the most steps.
  const unsigned workers = kv_heads * pairs / (args.causal != 0 ? 2 : 1);
  return {.pairs = kv_heads * pairs,
          .workers = workers,
          .heads = kv_heads * group,
          .n_heads = n_heads,
          .rows_of_head = static_cast<unsigned>(rows_of_head),
          .count = count,
          .lead = lead};
}

}  // namespace flash::sm90_bwd_cluster
