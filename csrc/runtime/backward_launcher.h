// Launches backward passes: the kernels of a configuration, one after the other.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "flash/core/backward_args.h"

namespace flash {

// Queues the kernels of the configuration with this id, in the order of their variants, but for
// those whose results nobody wants. Otherwise as launch() in launcher.h.
void launch_backward(std::size_t kernel_id, const BackwardArgs& args, int device,
                     cudaStream_t stream);

}  // namespace flash
