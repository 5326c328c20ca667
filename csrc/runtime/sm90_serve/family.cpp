// The launches of the Hopper family's serving kernels: tensor maps, and a persistent grid whose
// blocks share out the tiles.

#include "family.h"

#include <cstdint>
#include <limits>
#include <string>

#include "argument_checks.h"
#include "forward_checks.h"
#include "sm90/launch.h"
#include "sm90/tensor_map.h"
#include "sm90/tile_counters.h"
#include "sm90_serve/launch.h"

namespace flash::sm90_serve {

extern const Family kFamily;

namespace {

const HopperServeKernelConfig& config_of(const KernelEntry& entry) {
  return flash::config_of<HopperServeKernelConfig>(entry);
}

void check_pages(const KernelEntry& entry, const ServeArgs& args) {
  const bool paged = args.block_table != nullptr || args.cache_batch_idx != nullptr;
  if (paged != config_of(entry).paged) {
    refuse(entry, paged ? "it does not read caches by a table"
                        : "block_table and cache_batch_idx are null");
  }
  constexpr int kRows = HopperServeKernelConfig::kLeastPartRows;
  if (args.block_table != nullptr) {
    check_multiple(entry, "page_size", args.page_size, kRows, "the rows of a swizzle");
  }
}

void check_packed_heads(const KernelEntry& entry, const ServeArgs& args) {
  const int32_t heads = packed_heads(config_of(entry), args);
  constexpr int kMost = HopperServeKernelConfig::kMostPackedHeads;
  if (heads > kMost) {
    refuse(entry, "n_heads_q / n_heads_kv = " + std::to_string(heads) +
                      ": its tiles hold at most " + std::to_string(kMost));
  }
  for (const int64_t stride : {args.q_stride_head, args.o_stride_head}) {
    if (sm90::can_be_copied(stride * heads, entry.dtype)) continue;
    refuse(entry, "a stride from group to group of heads is " + std::to_string(stride * heads) +
                      " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
  }
}

void check(const KernelEntry& entry, const ServeArgs& args) {
  const int d_head = config_of(entry).d_head, d_v = config_of(entry).forward().value_columns();
  if (args.d_head != d_head || args.d_v != d_v) {
    refuse(entry, "d_head = " + std::to_string(args.d_head) +
                      " and d_v = " + std::to_string(args.d_v) + ": expected " +
                      std::to_string(d_head) + " and " + std::to_string(d_v));
  }
  if (args.n_splits != 1) refuse(entry, "n_splits is not 1");
  if (args.n_new != 0 || args.rotary_dim != 0) refuse(entry, "it neither appends nor rotates");
  check_pages(entry, args);
  for (const int64_t stride :
       {args.q_stride_batch, args.q_stride_seq, args.q_stride_head, args.k_stride_page,
        args.k_stride_seq, args.k_stride_head, args.v_stride_page, args.v_stride_seq,
        args.v_stride_head, args.o_stride_batch, args.o_stride_seq, args.o_stride_head}) {
    if (sm90::can_be_copied(stride, entry.dtype)) continue;
    refuse(entry, "a stride is " + std::to_string(stride) +
                      " elements: the copy engine takes 0 to 2^40 bytes, exclusive");
  }
  check_packed_heads(entry, args);
}

unsigned n_blocks(const KernelEntry& entry, const ServeArgs& args) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t tiles = tiles_per_head(config_of(entry), args);
  const int64_t heads = heads_of_tiles(config_of(entry), args);
  if (tiles > kMost || tiles * heads > kMost) {
    refuse(entry, "tiles of all heads exceed " + std::to_string(kMost));
  }
  return static_cast<unsigned>(tiles * heads);
}

void prepare(int device) {
  sm90::prepare_tensor_maps();
  sm90::prepare_tile_counters(device);
}

cudaError_t queue(const Launch& launch, const ServeArgs& args) {
  const unsigned grid = sm90::grid_size(launch.n_tiles, launch.device);
  // With a tile for each block there is nothing to share out.
  std::int32_t* const counter =
      launch.n_tiles > grid ? sm90::tile_counter(launch.device, launch.stream) : nullptr;
  const ServeKernelArgs record = kernel_args(config_of(launch.entry), args, counter);
  return queue_blocks(launch, grid, &record);
}

constexpr ServeFamily kServe = {.check = check, .n_blocks = n_blocks, .queue = queue};

}  // namespace

const Family kFamily = {.prepare = prepare, .serve = &kServe};

}  // namespace flash::sm90_serve
