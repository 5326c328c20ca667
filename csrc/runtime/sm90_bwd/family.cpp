// The launches of the Hopper family's backward pass: tensor maps, and a thread block for each block
// of rows that stay.

#include "family.h"

#include "backward_checks.h"
#include "flash/tile/row_stats.h"
#include "sm90/tensor_map.h"
#include "sm90_bwd/launch.h"

namespace flash::sm90_bwd {

extern const Family kFamily;

namespace {

using Config = HopperBackwardKernelConfig;

unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  const Config& config = config_of<Config>(entry);
  const int rows = entry.variant == Variant::kDots
                       ? Config::kDotsThreads / lanes_of_row(config.d_head)
                       : config.shape(entry.variant).rows;
  return backward_blocks(entry, args, rows);
}

void prepare(int) { sm90::prepare_tensor_maps(); }

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  const BackwardKernelArgs record =
      kernel_args(config_of<Config>(launch.entry), launch.entry.variant, args);
  return queue_blocks(launch, launch.n_tiles, &record);
}

constexpr BackwardFamily kBackward = {.check = check_copied, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm90_bwd
