// The launches of the Hopper family's fused backward pass. Its large kernel has the arguments, and
// the thread blocks, of the two-pass kernel of dK and dV.

#include "family.h"

#include "backward_checks.h"
#include "flash/sm90_bwd_fused/args.h"
#include "flash/sm90_bwd_fused/config.h"
#include "flash/sm90_bwd_fused/head_splits.h"
#include "flash/tile/row_stats.h"
#include "sm90/launch.h"
#include "sm90/tensor_map.h"
#include "sm90_bwd/launch.h"

namespace flash::sm90_bwd_fused {

extern const Family kFamily;

namespace {

using Config = FusedBackwardKernelConfig;

int rows_of_block(const Config& config, Variant variant) {
  if (variant == Variant::kDots) {
    return sm90_bwd::HopperBackwardKernelConfig::kDotsThreads / lanes_of_row(config.d_head);
  }
  return variant == Variant::kRound ? config.keys_columns : config.keys_rows;
}

unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  const Config& config = config_of<Config>(entry);
  const unsigned found =
      backward_blocks(entry, args, rows_of_block(config, entry.variant), config.stats_block());
  return entry.variant == Variant::kKeys ? found * head_splits(args, config.keys_rows) : found;
}

void prepare(int) { sm90::prepare_tensor_maps(); }

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  const Config& config = config_of<Config>(launch.entry);
  const bool is_large = launch.entry.variant == Variant::kKeys;
  const bool rounds = is_large && config.add_by == AddBy::kInOrder;
  BackwardKernelArgs record = sm90_bwd::kernel_args(
      config.two_pass(), is_large ? Variant::kKeys : Variant::kDots, args,
      rounds ? sm90_bwd::Narrow{sm90_bwd::Narrow::kQueryGradients, config.group_queries()}
             : sm90_bwd::Narrow{});
  record.call.head_splits = head_splits(args, config.keys_rows);
  const unsigned n_blocks =
      is_large ? sm90::grid_size(launch.n_tiles, launch.device) : launch.n_tiles;
  return queue_blocks_early(launch, n_blocks, &record);
}

constexpr BackwardFamily kBackward = {
    .check = sm90_bwd::check_copied_and_summed, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm90_bwd_fused
