// The kernels of a configuration, one after the other on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "configurations.h"
#include "device_guard.h"
#include "family.h"
#include "launcher.h"

namespace flash {

// Queues those that have thread blocks. `n_blocks` (entry) -> unsigned throws for what a launch
// cannot have: for any kernel, before the first is queued. `queue` is the family's.
template <typename Args, typename CountBlocks>
void queue_each(Configuration configuration, const Args& args, int device, cudaStream_t stream,
                CountBlocks n_blocks, cudaError_t (*queue)(const Launch&, const Args&)) {
  for (const KernelEntry& entry : configuration) n_blocks(entry);  // all, or none
  const DeviceGuard guard(device);
  for (const KernelEntry& entry : configuration) {
    const unsigned count = n_blocks(entry);
    if (count == 0) continue;
    const void* const handle = make_kernel_ready(entry, device);
    check_queued(queue({.entry = entry,
                        .n_tiles = count,
                        .device = device,
                        .stream = stream,
                        .handle = handle},
                       args),
                 entry, device);
  }
}

}  // namespace flash
