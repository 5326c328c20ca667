// What the launcher asks of a family of kernels.
//
// Every family defines its `kFamily` in a file or folder of its own here. The generated table leads
// from a kernel to it, so that nothing else has to name a family.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "flash/core/args.h"
#include "flash/core/backward_args.h"
#include "flash/core/registry.h"
#include "flash/core/serve_args.h"

namespace flash {

// A kernel that is to be queued.
struct Launch {
  const KernelEntry& entry;
  unsigned n_tiles;
  int device;  // the current one, and prepared
  cudaStream_t stream;
  const void* handle;  // of make_kernel_ready()
};

// A family whose kernels are of backward passes. All `args` have passed check_backward_args.
struct BackwardFamily {
  // Throws std::invalid_argument for what only the kernels of this family do not take.
  void (*check)(const KernelEntry& entry, const BackwardArgs& args);
  // Thread blocks of a kernel; 0: it has nothing to do. Throws as check() if there are more than a
  // launch can have.
  unsigned (*n_blocks)(const KernelEntry& entry, const BackwardArgs& args);
  // As Family's.
  cudaError_t (*queue)(const Launch& launch, const BackwardArgs& args);
};

// A family whose kernels serve sequences of different lengths and caches. All `args` have passed
// check_serve_args.
struct ServeFamily {
  // Throws std::invalid_argument for what only the kernels of this family do not take.
  void (*check)(const KernelEntry& entry, const ServeArgs& args);
  // As BackwardFamily's.
  unsigned (*n_blocks)(const KernelEntry& entry, const ServeArgs& args);
  // As Family's.
  cudaError_t (*queue)(const Launch& launch, const ServeArgs& args);
};

// All `args` have passed check_forward_args.
struct Family {
  // Throws std::invalid_argument for what only the kernels of this family do not take.
  void (*check)(const KernelEntry& entry, const ForwardArgs& args) = nullptr;
  // Which of the kernels of the entry's configuration the problem needs.
  Variant (*variant_for)(const KernelEntry& entry, const ForwardArgs& args) = nullptr;
  // What a configuration without that kernel takes: what follows its name in a message.
  std::string (*what_it_takes)(const KernelEntry& entry) = nullptr;
  // Pieces of the problem that one thread block computes at a time. Throws as check() if there are
  // more than a launch can have.
  unsigned (*n_tiles)(const KernelEntry& entry, const ForwardArgs& args) = nullptr;
  // Whatever else launches on this device need, once for each kernel. The device is current.
  void (*prepare)(int device) = nullptr;
  // Queues the kernel with the arguments that it takes, made from `args`.
  cudaError_t (*queue)(const Launch& launch, const ForwardArgs& args) = nullptr;
  // Of a family of backward passes, which has of the above prepare() alone.
  const BackwardFamily* backward = nullptr;
  // Of a family that serves, which has prepare() as well.
  const ServeFamily* serve = nullptr;
};

// The configuration of an entry, for the family whose type it has.
template <typename Config>
const Config& config_of(const KernelEntry& entry) {
  return *static_cast<const Config*>(entry.config);
}

// The last step of Family::queue. `args`: the record that the kernel takes.
cudaError_t queue_blocks(const Launch& launch, unsigned n_blocks, const void* args);

// The same of a kernel that begins with ptx::await_grids_before() (grid_dependency.cuh): it may be
// launched while the one before it in the stream ends. From compute capability 9.0 on.
cudaError_t queue_blocks_early(const Launch& launch, unsigned n_blocks, const void* args);

}  // namespace flash
