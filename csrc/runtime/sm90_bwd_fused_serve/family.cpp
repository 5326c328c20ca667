// The launches of the Hopper family's fused backward pass that serves.

#include "family.h"

#include <limits>
#include <string>
#include <utility>

#include "backward_checks.h"
#include "flash/sm90_bwd_fused_serve/args.h"
#include "flash/sm90_bwd_fused_serve/config.h"
#include "flash/tile/row_stats.h"
#include "forward_checks.h"
#include "sm90/tensor_map.h"
#include "sm90_bwd/launch.h"

namespace flash::sm90_bwd_fused_serve {

extern const Family kFamily;

namespace {

using Config = FusedServeBackwardKernelConfig;

// Their chunks are one dimension of the maps of packed rows.
void check_heads_together(const KernelEntry& entry, const BackwardArgs& args) {
  const int d_head = config_of<Config>(entry).d_head;
  for (const auto& [n_heads, stride] : {std::pair{args.n_heads_q, args.q_stride_head},
                                        {args.n_heads_q, args.d_o_stride_head},
                                        {args.n_heads_kv, args.k_stride_head},
                                        {args.n_heads_kv, args.v_stride_head},
                                        {args.n_heads_kv, args.d_k_stride_head},
                                        {args.n_heads_kv, args.d_v_stride_head}}) {
    if (n_heads < 2 || stride == d_head || stride == 0) continue;
    refuse(entry, "heads of packed rows lie " + std::to_string(stride) +
                      " elements apart: expected " + std::to_string(d_head));
  }
}

void check(const KernelEntry& entry, const BackwardArgs& args) {
  sm90_bwd::check_copied_and_summed(entry, args);
  if ((args.cu_seqlens_q == nullptr) != (args.cu_seqlens_k == nullptr)) {
    refuse(entry, "one of cu_seqlens_q and cu_seqlens_k is null");
  }
  const bool used = args.seqused_q != nullptr || args.seqused_k != nullptr;
  if (used && args.cu_seqlens_q == nullptr) refuse(entry, "seqused without cu_seqlens");
  if (args.window_left < 0 || args.window_right < 0) refuse(entry, "the window is negative");
  if (args.cu_seqlens_q != nullptr) check_heads_together(entry, args);
  if (args.softcap != 0.0f) refuse(entry, "softcap is not 0");
}

// Blocks of keys: packed sequences are one of as many rows, and each may begin a block more. Else
// blocks of the rows of RowStats and sums.
unsigned n_blocks(const KernelEntry& entry, const BackwardArgs& args) {
  using TwoPass = sm90_bwd::HopperBackwardKernelConfig;
  const Config& config = config_of<Config>(entry);
  const bool packed = args.cu_seqlens_q != nullptr;
  const bool of_keys = entry.variant == Variant::kKeys;
  const bool of_dots = entry.variant == Variant::kDots;
  const int rows = of_keys   ? config.keys_rows
                   : of_dots ? TwoPass::kDotsThreads / lanes_of_row(config.d_head)
                             : config.keys_columns;
  BackwardArgs counted = args;
  if (packed) counted.batch = 1;
  const unsigned count = backward_blocks(entry, counted, rows);
  if (count == 0 || (of_keys && !packed)) return count;
  const int64_t stats_rows =
      packed ? packed_stats_rows(args.seqlen_q, args.batch) : row_stats_rows(args.seqlen_q);
  const int64_t of_head = of_keys ? args.seqlen_k / rows + args.batch : stats_rows / rows;
  const int64_t heads = of_keys ? args.n_heads_kv : args.n_heads_q;
  const int64_t blocks = of_head * heads * counted.batch;
  if (blocks > std::numeric_limits<int32_t>::max()) refuse(entry, "too many sequences and heads");
  return static_cast<unsigned>(blocks);
}

void prepare(int) { sm90::prepare_tensor_maps(); }

cudaError_t queue(const Launch& launch, const BackwardArgs& args) {
  const Variant variant = launch.entry.variant;
  const sm90_bwd::BackwardKernelArgs record =
      sm90_bwd::kernel_args(config_of<Config>(launch.entry).two_pass(),
                            variant == Variant::kKeys ? variant : Variant::kDots, args);
  return queue_blocks(launch, launch.n_tiles, &record);
}

constexpr BackwardFamily kBackward = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .backward = &kBackward};

}  // namespace flash::sm90_bwd_fused_serve
