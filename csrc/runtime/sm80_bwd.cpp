// The launches of the Ampere family's backward pass. Its kernels take the callers' argument record
// as it is.

#include "backward_checks.h"
#include "family.h"
#include "flash/sm80_bwd/config.h"
#include "flash/tile/row_stats.h"

namespace flash::sm80_bwd {

extern const Family kFamily;

namespace {

using Config = AmpereBackwardKernelConfig;

void check(const KernelEntry&, const BackwardArgs&) {}  // takes all that any family takes

unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  const Config& config = config_of<Config>(entry);
  const int rows = entry.variant == Variant::kDots
                       ? Config::kDotsThreads / lanes_of_row(config.d_head)
                       : config.shape(entry.variant).rows;
  return backward_blocks(entry, args, rows);
}

void prepare(int) {}

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  return queue_blocks(launch, launch.n_tiles, &args);
}

constexpr BackwardFamily kBackward = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm80_bwd
