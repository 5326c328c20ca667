// Launches serving calls: attention, and the merging of its splits where there are several.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "flash/core/serve_args.h"

namespace flash {

// Queues the kernels of the configuration with this id, one after the other, but for those that
// have nothing to do. Otherwise as launch() in launcher.h.
void launch_serving(std::size_t kernel_id, const ServeArgs& args, int device, cudaStream_t stream);

}  // namespace flash
