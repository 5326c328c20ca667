// Launches kernels of the registry: checked arguments, the caller's device and stream, checked
// results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "flash/core/args.h"
#include "flash/core/registry.h"

namespace flash {

// Queues a kernel of the configuration with this id (its index in configurations()) on `stream` of
// `device` and returns without waiting: that of the variant that its family names for the problem.
// The calling thread's current device is the same afterwards. Legal while the stream is being
// captured.
//
// Throws std::out_of_range for an unknown id, std::invalid_argument for arguments that the kernel
// does not take, CudaError for what CUDA reports.
void launch(std::size_t kernel_id, const ForwardArgs& args, int device, cudaStream_t stream);

// The two halves of a launch that are the same for every kind of arguments. The device is current.
// The first sets what CUDA has to know of the kernel, once for each device, and returns what the
// driver knows it by on all of them; null: the runtime alone can launch it. The second throws what
// `status`, of the call that queued it, says.
const void* make_kernel_ready(const KernelEntry& entry, int device);
void check_queued(cudaError_t status, const KernelEntry& entry, int device);

struct KernelAttributes {
  int registers;            // per thread
  int static_shared_bytes;  // per block
  int dynamic_shared_bytes;
  int local_bytes;  // per thread: stack and spills
  int max_threads_per_block;
  int blocks_per_multiprocessor;  // that fit at once
  int binary_version;             // 80: the code in use was compiled for sm_80
  int ptx_version;
};

KernelAttributes kernel_attributes(std::size_t kernel_id, int device, Variant variant);

// 0 without a GPU or without a driver; no error then.
int device_count();

}  // namespace flash
