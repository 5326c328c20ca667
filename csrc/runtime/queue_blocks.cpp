#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver_entry.h"
#include "family.h"

namespace flash {
namespace {

using DriverLaunch = decltype(&cuLaunchKernel);
using DriverLaunchWith = decltype(&cuLaunchKernelEx);  // attributes

DriverLaunch driver_launch() {
  static const auto launch = reinterpret_cast<DriverLaunch>(driver_entry("cuLaunchKernel"));
  return launch;
}

DriverLaunchWith driver_launch_with() {
  static const auto launch = reinterpret_cast<DriverLaunchWith>(driver_entry("cuLaunchKernelEx"));
  return launch;
}

CUfunction function_of(const Launch& launch) {
  return reinterpret_cast<CUfunction>(const_cast<void*>(launch.handle));
}

}  // namespace

// The driver itself takes less time than the runtime, which first looks up what the function is.
cudaError_t queue_blocks(const Launch& launch, unsigned n_blocks, const void* args) {
  void* parameters[] = {const_cast<void*>(args)};
  const auto n_threads = static_cast<unsigned>(launch.entry.n_threads);
  const auto smem_bytes = static_cast<unsigned>(launch.entry.smem_bytes);
  if (launch.handle != nullptr && driver_launch() != nullptr) {
    const CUresult status = driver_launch()(function_of(launch), n_blocks, 1, 1, n_threads, 1, 1,
                                            smem_bytes, launch.stream, parameters, nullptr);
    if (status == CUDA_SUCCESS) return cudaSuccess;
    // Nothing was queued. The runtime makes the device's context current, which a thread that
    // never called it lacks; or says in its own words what is wrong.
  }
  return cudaLaunchKernel(launch.entry.function, dim3(n_blocks), dim3(n_threads), parameters,
                          smem_bytes, launch.stream);
}

cudaError_t queue_blocks_early(const Launch& launch, unsigned n_blocks, const void* args) {
  if (launch.handle != nullptr && driver_launch_with() != nullptr) {
    CUlaunchAttribute early{};
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = n_blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = static_cast<unsigned>(launch.entry.n_threads);
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(launch.entry.smem_bytes);
    config.hStream = launch.stream;
    config.attrs = &early;
    config.numAttrs = 1;
    void* parameters[] = {const_cast<void*>(args)};
    const CUresult status = driver_launch_with()(&config, function_of(launch), parameters, nullptr);
    if (status == CUDA_SUCCESS) return cudaSuccess;
  }
  return queue_blocks(launch, n_blocks, args);  // as late as any other, it waits for nothing
}

}  // namespace flash
