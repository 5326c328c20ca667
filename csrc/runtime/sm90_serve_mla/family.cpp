// The launches of the Hopper family's serving kernels for MLA: tensor maps of the cache, and a grid
// as the Ampere family's.

#include "family.h"

#include <string>

#include "argument_checks.h"
#include "flash/sm90_serve_mla/config.h"
#include "forward_checks.h"
#include "serve_checks.h"
#include "sm90/tensor_map.h"
#include "sm90_serve_mla/launch.h"

namespace flash::sm90_serve_mla {

extern const Family kFamily;

namespace {

using Config = HopperMlaKernelConfig;

void check(const KernelEntry& entry, const ServeArgs& args) {
  const Config& config = config_of<Config>(entry);
  constexpr int kRotated = sm80_serve_mla::AmpereMlaKernelConfig::kRotated;
  if (args.d_head != kRotated || args.d_v != config.d_v()) {
    refuse(entry, "d_head = " + std::to_string(args.d_head) +
                      " and d_v = " + std::to_string(args.d_v) + ": expected " +
                      std::to_string(kRotated) + " and " + std::to_string(config.d_v()));
  }
  check_pointer(entry, "qv", args.qv);
  check_stride(entry, "qv_stride_batch", args.qv_stride_batch);
  check_stride(entry, "qv_stride_seq", args.qv_stride_seq);
  check_stride(entry, "qv_stride_head", args.qv_stride_head);
  if (args.block_table != nullptr) {
    check_multiple(entry, "page_size", args.page_size, Config::kLeastPartRows,
                   "the rows of a swizzle");
  }
  for (const int64_t stride : {args.k_stride_page, args.k_stride_seq, args.k_stride_head,
                               args.v_stride_page, args.v_stride_seq, args.v_stride_head}) {
    if (sm90::can_be_copied(stride, entry.dtype)) continue;
    refuse(entry, "a stride is " + std::to_string(stride) +
                      " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
  }
}

unsigned n_blocks(const KernelEntry& entry, const ServeArgs& args) {
  // Thread blocks that share the keys of the call merge their parts themselves.
  if (entry.variant == Variant::kCombine && args.arrivals != nullptr) return 0;
  const Config& config = config_of<Config>(entry);
  return serve_blocks(entry, args, config.B_r, config.combining_blocks());
}

void prepare(int) { sm90::prepare_tensor_maps(); }

cudaError_t queue(const Launch& launch, const ServeArgs& args) {
  const ServeKernelArgs record = kernel_args(config_of<Config>(launch.entry), args);
  const bool merges = launch.entry.variant == Variant::kCombine;
  return merges ? queue_blocks_early(launch, launch.n_tiles, &record)
                : queue_blocks(launch, launch.n_tiles, &record);
}

constexpr ServeFamily kServe = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .serve = &kServe};

}  // namespace flash::sm90_serve_mla
