// The Hopper family's launches: tensor maps, and a persistent grid whose blocks share out the
// tiles.

#include "family.h"

#include <cstdint>

#include "forward_checks.h"
#include "sm90/launch.h"
#include "sm90/tensor_map.h"
#include "sm90/tile_counters.h"

namespace flash::sm90 {

extern const Family kFamily;

namespace {

const HopperForwardKernelConfig& config_of(const KernelEntry& entry) {
  return flash::config_of<HopperForwardKernelConfig>(entry);
}

void check(const KernelEntry& entry, const ForwardArgs& args) {
  if (!(args.softmax_scale > 0)) {
    refuse(entry, "softmax_scale = " + std::to_string(args.softmax_scale) +
                      ": this family takes positive scales");
  }
  if (args.causal != 0 && int64_t{args.seqlen_q} + args.seqlen_k > kMaxSeqlen) {
    refuse(entry, "causal: seqlen_q + seqlen_k = " +
                      std::to_string(int64_t{args.seqlen_q} + args.seqlen_k) +
                      ": expected at most " + std::to_string(kMaxSeqlen));
  }
  for (const int64_t stride :
       {args.q_stride_batch, args.q_stride_seq, args.q_stride_head, args.k_stride_batch,
        args.k_stride_seq, args.k_stride_head, args.v_stride_batch, args.v_stride_seq,
        args.v_stride_head, args.o_stride_batch, args.o_stride_seq, args.o_stride_head}) {
    if (can_be_copied(stride, entry.dtype)) continue;
    refuse(entry, "a stride is " + std::to_string(stride) +
                      " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
  }
}

Variant variant_for(const KernelEntry&, const ForwardArgs&) { return Variant::kAny; }

std::string what_it_takes(const KernelEntry&) { return " has one kernel, which takes everything"; }

unsigned n_tiles(const KernelEntry& entry, const ForwardArgs& args) {
  return forward_tiles(entry, args, config_of(entry).block_m());
}

void prepare(int device) {
  prepare_tensor_maps();
  prepare_tile_counters(device);
}

cudaError_t queue(const Launch& launch, const ForwardArgs& args) {
  const unsigned grid = grid_size(launch.n_tiles, launch.device);
  // With a tile for each block there is nothing to share out.
  std::int32_t* const counter =
      launch.n_tiles > grid ? tile_counter(launch.device, launch.stream) : nullptr;
  const ForwardKernelArgs record = kernel_args(config_of(launch.entry), args, counter);
  return queue_blocks(launch, grid, &record);
}

}  // namespace

const Family kFamily = {.check = check,
                        .variant_for = variant_for,
                        .what_it_takes = what_it_takes,
                        .n_tiles = n_tiles,
                        .prepare = prepare,
                        .queue = queue};

}  // namespace flash::sm90
