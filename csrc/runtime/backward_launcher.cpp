#include "backward_launcher.h"

#include "backward_checks.h"
#include "configurations.h"
#include "device_guard.h"
#include "family.h"
#include "forward_checks.h"
#include "launcher.h"

namespace flash {

void launch_backward(std::size_t kernel_id, const BackwardArgs& args, int device,
                     cudaStream_t stream) {
  const Configuration configuration = configuration_of(kernel_id);
  const KernelEntry& first = configuration.front();
  const BackwardFamily* const family = first.family->backward;
  if (family == nullptr) refuse(first, "is of a forward pass: it computes no gradients");
  check_backward_args(first, args);
  family->check(first, args);
  for (const KernelEntry& entry : configuration) family->n_blocks(entry, args);  // all, or none
  const DeviceGuard guard(device);
  for (const KernelEntry& entry : configuration) {
    const unsigned n_blocks = family->n_blocks(entry, args);
    if (n_blocks == 0) continue;
    make_kernel_ready(entry, device);
    check_queued(
        family->queue({.entry = entry, .n_tiles = n_blocks, .device = device, .stream = stream},
                      args),
        entry, device);
  }
}

}  // namespace flash
