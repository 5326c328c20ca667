// The launches of the Hopper family's backward pass by pairs of thread blocks.

#include "family.h"

#include <algorithm>

#include "backward_checks.h"
#include "flash/sm90_bwd_cluster/args.h"
#include "flash/sm90_bwd_cluster/config.h"
#include "flash/sm90_bwd_cluster/sections.h"
#include "flash/tile/row_stats.h"
#include "sm90/launch.h"
#include "sm90/tensor_map.h"
#include "sm90_bwd/launch.h"

namespace flash::sm90_bwd_cluster {

extern const Family kFamily;

namespace {

using Config = ClusterBackwardKernelConfig;

// A pair has a block of twice the rows.
int rows_of_block(const Config& config, Variant variant) {
  if (variant == Variant::kDots) {
    return sm90_bwd::HopperBackwardKernelConfig::kDotsThreads / lanes_of_row(config.d_head);
  }
  return variant == Variant::kRound ? config.keys_columns : Config::kBlocks * config.keys_rows;
}

unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  const Config& config = config_of<Config>(entry);
  const unsigned found =
      backward_blocks(entry, args, rows_of_block(config, entry.variant), config.stats_block());
  if (found == 0 || entry.variant == Variant::kKeys) return found * config.cluster(entry.variant);
  const HeadSections sections = sections_of(config, args);
  const bool before = entry.variant == Variant::kDots;
  return found / sections.n_heads *
         (before ? sections.prepared_before() : sections.n_heads - sections.rounded_behind());
}

void prepare(int) { sm90::prepare_tensor_maps(); }

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  const Config& config = config_of<Config>(launch.entry);
  const bool is_large = launch.entry.variant == Variant::kKeys;
  const BackwardKernelArgs record = {
      sm90_bwd::kernel_args(config.two_pass(), is_large ? Variant::kKeys : Variant::kDots, args,
                            is_large
                                ? sm90_bwd::Narrow{sm90_bwd::Narrow::kKeyChunks, config.keys_rows}
                                : sm90_bwd::Narrow{}),
      sections_of(config, args)};
  // Whole pairs, one on every two multiprocessors at most, that stay.
  const unsigned n_blocks =
      is_large ? std::max(sm90::grid_size(launch.n_tiles, launch.device) / Config::kBlocks, 1u) *
                     Config::kBlocks
               : launch.n_tiles;
  return queue_blocks_early(launch, n_blocks, &record);
}

constexpr BackwardFamily kBackward = {
    .check = sm90_bwd::check_copied_and_summed, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm90_bwd_cluster
