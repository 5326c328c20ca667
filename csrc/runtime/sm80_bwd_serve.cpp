// The launches of the Ampere family's backward pass that serves. Its kernels take the callers'
// argument record as it is.

#include <limits>

#include "backward_checks.h"
#include "family.h"
#include "flash/sm80_bwd_serve/config.h"
#include "flash/tile/row_stats.h"
#include "forward_checks.h"

namespace flash::sm80_bwd_serve {

extern const Family kFamily;

namespace {

using Config = AmpereServeBackwardKernelConfig;

void check(const KernelEntry& entry, const BackwardArgs& args) {
  if ((args.cu_seqlens_q == nullptr) != (args.cu_seqlens_k == nullptr)) {
    refuse(entry, "one of cu_seqlens_q and cu_seqlens_k is null");
  }
  if (args.window_left < 0 || args.window_right < 0) refuse(entry, "the window is negative");
  if (!(args.softcap >= 0.0f)) refuse(entry, "softcap is negative");
}

// Packed sequences are one of as many rows, and each may begin a block more.
unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  const Config& config = config_of<Config>(entry);
  const bool of_dots = entry.variant == Variant::kDots;
  const int rows = of_dots ? Config::kDotsThreads / lanes_of_row(config.d_head)
                           : config.shape(entry.variant).rows;
  if (args.cu_seqlens_q == nullptr) return backward_blocks(entry, args, rows);
  BackwardArgs packed = args;
  packed.batch = 1;
  const unsigned count = backward_blocks(entry, packed, rows);
  if (of_dots || count == 0) return count;
  const bool of_keys = entry.variant == Variant::kKeys;
  const int64_t heads = of_keys ? args.n_heads_kv : args.n_heads_q;
  const int64_t n_rows = of_keys ? args.seqlen_k : args.seqlen_q;
  const int64_t blocks = (n_rows / rows + args.batch) * heads;
  if (blocks > std::numeric_limits<int32_t>::max()) refuse(entry, "too many sequences and heads");
  return static_cast<unsigned>(blocks);
}

void prepare(int) {}

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  return queue_blocks(launch, launch.n_tiles, &args);
}

constexpr BackwardFamily kBackward = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm80_bwd_serve
