#include "backward_launcher.h"

#include "backward_checks.h"
#include "forward_checks.h"
#include "kernel_sequence.h"

namespace flash {

void launch_backward(std::size_t kernel_id, const BackwardArgs& args, int device,
                     cudaStream_t stream) {
  const Configuration configuration = configuration_of(kernel_id);
  const KernelEntry& first = configuration.front();
  const BackwardFamily* const family = first.family->backward;
  if (family == nullptr) refuse(first, "is of a forward pass: it computes no gradients");
  check_backward_args(first, args);
  family->check(first, args);
  const auto n_blocks = [&](const KernelEntry& entry) { return family->n_blocks(entry, args); };
  queue_each(configuration, args, device, stream, n_blocks, family->queue);
}

}  // namespace flash
