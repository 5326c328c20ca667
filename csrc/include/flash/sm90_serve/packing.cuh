// What the 64 rows of a group of consumers stand for.
//
// With `pack_gqa` a tile has the query heads that share a KV head: row r is query r / group_heads
// of head r % group_heads, so that keys are read once for all of them, and few queries fill many
// rows. A group has whole queries; where the heads do not divide 64, its last rows stand for
// nothing, and are cleared as those behind a sequence's end are.
#pragma once

#include "flash/ptx/device.cuh"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"

namespace flash::sm90_serve {

template <HopperServeKernelConfig kConfig>
struct Packing {
  static constexpr int kGroupRows = sm90::HopperForwardKernelConfig::kGroupRows;

  // Queries of a group's rows, and of a tile's.
  FLASH_DEVICE static int group_queries(const ServeKernelArgs& args) {
    if constexpr (kConfig.pack_gqa) return args.group_queries;
    return kGroupRows;
  }
  FLASH_DEVICE static int tile_queries(const ServeKernelArgs& args) {
    return kConfig.n_mma_groups * group_queries(args);
  }

  // Heads that have tiles of their own.
  FLASH_DEVICE static int n_heads(const ServeKernelArgs& args) {
    return kConfig.pack_gqa ? args.call.n_heads_kv : args.call.n_heads_q;
  }

  // Of a row of a group, counted from its first: exact for all 64 rows and as many heads.
  FLASH_DEVICE static int query(const ServeKernelArgs& args, int row) {
    if constexpr (kConfig.pack_gqa) return row * args.group_inverse >> 16;
    return row;
  }

  // Rows of a group that exist, where `n_queries` do from its first on.
  FLASH_DEVICE static int n_rows(const ServeKernelArgs& args, int n_queries) {
    if constexpr (kConfig.pack_gqa) return min(n_queries, args.group_queries) * args.group_heads;
    return n_queries;
  }
};

}  // namespace flash::sm90_serve
