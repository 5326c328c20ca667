#include "serve_launcher.h"

#include "forward_checks.h"
#include "kernel_sequence.h"
#include "serve_checks.h"

namespace flash {

void launch_serving(std::size_t kernel_id, const ServeArgs& args, int device, cudaStream_t stream) {
  const Configuration configuration = configuration_of(kernel_id);
  const KernelEntry& first = configuration.front();
  const ServeFamily* const family = first.family->serve;
  if (family == nullptr) refuse(first, "does not serve caches and lengths");
  check_serve_args(first, args);
  family->check(first, args);
  const auto n_blocks = [&](const KernelEntry& entry) { return family->n_blocks(entry, args); };
  queue_each(configuration, args, device, stream, n_blocks, family->queue);
}

}  // namespace flash
