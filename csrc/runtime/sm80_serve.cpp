// The launches of the Ampere family's serving kernels, which take the callers' argument record as
// it is.

#include <string>

#include "family.h"
#include "flash/sm80_serve/config.h"
#include "forward_checks.h"
#include "serve_checks.h"

namespace flash::sm80_serve {

extern const Family kFamily;

namespace {

using Config = AmpereServeKernelConfig;

void check(const KernelEntry& entry, const ServeArgs& args) {
  const Config& config = config_of<Config>(entry);
  const int most = config.d_head;
  if (args.d_head > most || args.d_v > most) {
    refuse(entry, "d_head = " + std::to_string(args.d_head) + " and d_v = " +
                      std::to_string(args.d_v) + ": expected at most " + std::to_string(most));
  }
  if (config.shares_keys() != (args.arrivals != nullptr)) {
    refuse(entry, config.shares_keys() ? "arrivals is null" : "arrivals is given");
  }
}

unsigned n_blocks(const KernelEntry& entry, const ServeArgs& args) {
  const Config& config = config_of<Config>(entry);
  return serve_blocks(entry, args, config.B_r, config.combining_blocks());
}

void prepare(int) {}

cudaError_t queue(const Launch& launch, const ServeArgs& args) {
  return queue_blocks(launch, launch.n_tiles, &args);
}

constexpr ServeFamily kServe = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .serve = &kServe};

}  // namespace flash::sm80_serve
