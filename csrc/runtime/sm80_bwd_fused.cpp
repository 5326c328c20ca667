// The launches of the Ampere family's fused backward pass. Its kernels take the callers' argument
// record as it is.

#include "argument_checks.h"
#include "backward_checks.h"
#include "family.h"
#include "flash/sm80_bwd_fused/config.h"
#include "flash/tile/row_stats.h"

namespace flash::sm80_bwd_fused {

extern const Family kFamily;

namespace {

using Config = AmpereFusedBackwardKernelConfig;

void check(const KernelEntry& entry, const BackwardArgs& args) {
  if (args.d_q_sums == nullptr) refuse(entry, "d_q_sums is null");
}

int rows_of_block(const Config& config, Variant variant) {
  if (variant == Variant::kDots) return Config::kDotsThreads / lanes_of_row(config.d_head);
  return variant == Variant::kRound ? config.keys_columns : config.keys_rows;
}

unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  return backward_blocks(entry, args, rows_of_block(config_of<Config>(entry), entry.variant));
}

void prepare(int) {}

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  return queue_blocks(launch, launch.n_tiles, &args);
}

constexpr BackwardFamily kBackward = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm80_bwd_fused
