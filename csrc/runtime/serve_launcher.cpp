#include "serve_launcher.h"

#include "configurations.h"
#include "device_guard.h"
#include "family.h"
#include "forward_checks.h"
#include "launcher.h"
#include "serve_checks.h"

namespace flash {

void launch_serving(std::size_t kernel_id, const ServeArgs& args, int device, cudaStream_t stream) {
  const Configuration configuration = configuration_of(kernel_id);
  const KernelEntry& first = configuration.front();
  const ServeFamily* const family = first.family->serve;
  if (family == nullptr) refuse(first, "does not serve caches and lengths");
  check_serve_args(first, args);
  family->check(first, args);
  const int tile_rows = family->tile_rows(first);
  for (const KernelEntry& entry : configuration)
    serve_blocks(entry, args, tile_rows);  // all, or none
  const DeviceGuard guard(device);
  for (const KernelEntry& entry : configuration) {
    const unsigned n_blocks = serve_blocks(entry, args, tile_rows);
    if (n_blocks == 0) continue;
    make_kernel_ready(entry, device);
    check_queued(
        family->queue({.entry = entry, .n_tiles = n_blocks, .device = device, .stream = stream},
                      args),
        entry, device);
  }
}

}  // namespace flash
