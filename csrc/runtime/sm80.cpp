// The Ampere family's launches. Its kernels take the callers' argument record as it is.

#include "family.h"
#include "flash/sm80/config.h"
#include "forward_checks.h"

namespace flash::sm80 {

extern const Family kFamily;

namespace {

const FlashForwardKernelConfig& config_of(const KernelEntry& entry) {
  return flash::config_of<FlashForwardKernelConfig>(entry);
}

void check(const KernelEntry&, const ForwardArgs&) {}  // takes all that any family takes

Variant variant_for(const KernelEntry& entry, const ForwardArgs& args) {
  const FlashForwardKernelConfig& config = config_of(entry);
  const bool any = args.causal != 0 || args.seqlen_k == 0 || args.seqlen_q % config.B_r != 0 ||
                   args.seqlen_k % config.B_c != 0;
  return any ? Variant::kAny : Variant::kWhole;
}

std::string what_it_takes(const KernelEntry& entry) {
  const FlashForwardKernelConfig& config = config_of(entry);
  return ": this build has it only for seqlen_q and seqlen_k that are multiples of B_r = " +
         std::to_string(config.B_r) + " and B_c = " + std::to_string(config.B_c) + ", not causal";
}

unsigned n_tiles(const KernelEntry& entry, const ForwardArgs& args) {
  return forward_tiles(entry, args, config_of(entry).B_r);
}

void prepare(int) {}

cudaError_t queue(const Launch& launch, const ForwardArgs& args) {
  return queue_blocks(launch, launch.n_tiles, &args);
}

}  // namespace

const Family kFamily = {.check = check,
                        .variant_for = variant_for,
                        .what_it_takes = what_it_takes,
                        .n_tiles = n_tiles,
                        .prepare = prepare,
                        .queue = queue};

}  // namespace flash::sm80
