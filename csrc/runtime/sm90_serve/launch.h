// From the argument record of a serving call to what a kernel of the Hopper family takes.
#pragma once

#include <cstdint>

#include "flash/core/serve_args.h"
#include "flash/sm90_serve/args.h"
#include "flash/sm90_serve/config.h"

namespace flash::sm90_serve {

// `args` is checked (check_serve_args); `tile_counter` as in sm90::ForwardKernelArgs. Throws
// CudaError if the driver refuses a tensor.
ServeKernelArgs kernel_args(const HopperServeKernelConfig& config, const ServeArgs& args,
                            std::int32_t* tile_counter);

// Query heads whose rows share a tile: 1, or with pack_gqa those of a KV head.
int32_t packed_heads(const HopperServeKernelConfig& config, const ServeArgs& args);

// Heads that have tiles of their own: the query heads, or with pack_gqa the KV heads.
int32_t heads_of_tiles(const HopperServeKernelConfig& config, const ServeArgs& args);

// Tiles of one of these heads: with cu_seqlens_q as many as there can be.
int64_t tiles_per_head(const HopperServeKernelConfig& config, const ServeArgs& args);

}  // namespace flash::sm90_serve
