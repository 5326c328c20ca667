// From the argument record that callers pass to what a kernel of the Hopper family takes.
#pragma once

#include <cstdint>

#include "flash/core/args.h"
#include "flash/sm90/args.h"
#include "flash/sm90/config.h"

namespace flash::sm90 {

// `args` is checked (check_forward_args); `tile_counter` as in ForwardKernelArgs. Throws CudaError
// if the driver refuses a tensor.
ForwardKernelArgs kernel_args(const HopperForwardKernelConfig& config, const ForwardArgs& args,
                              std::int32_t* tile_counter);

// Query heads, of `heads`, whose K and V share L2; at least one.
int32_t heads_per_section(int64_t kv_head_bytes, int64_t queries_per_kv, int64_t heads);

// Thread blocks of a launch of `n_tiles` tiles: a block per multiprocessor goes through its share
// of them.
unsigned grid_size(unsigned n_tiles, int device);

}  // namespace flash::sm90
