// The launches of the Ampere family's serving kernels for MLA, which take the callers' argument
// record as it is.

#include <string>

#include "argument_checks.h"
#include "family.h"
#include "flash/sm80_serve_mla/config.h"
#include "forward_checks.h"
#include "serve_checks.h"

namespace flash::sm80_serve_mla {

extern const Family kFamily;

namespace {

using Config = AmpereMlaKernelConfig;

void check(const KernelEntry& entry, const ServeArgs& args) {
  const Config& config = config_of<Config>(entry);
  if (args.d_head != Config::kRotated || args.d_v != config.d_v()) {
    refuse(entry, "d_head = " + std::to_string(args.d_head) +
                      " and d_v = " + std::to_string(args.d_v) + ": expected " +
                      std::to_string(Config::kRotated) + " and " + std::to_string(config.d_v()));
  }
  check_pointer(entry, "qv", args.qv);
  check_stride(entry, "qv_stride_batch", args.qv_stride_batch);
  check_stride(entry, "qv_stride_seq", args.qv_stride_seq);
  check_stride(entry, "qv_stride_head", args.qv_stride_head);
}

unsigned n_blocks(const KernelEntry& entry, const ServeArgs& args) {
  // Thread blocks that share the keys of the call merge their parts themselves.
  if (entry.variant == Variant::kCombine && args.arrivals != nullptr) return 0;
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

}  // namespace flash::sm80_serve_mla
