#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver_entry.h"
#include "family.h"

namespace flash {
namespace {

using DriverLaunch = decltype(&cuLaunchKernel);

DriverLaunch driver_launch() {
  static const auto launch = reinterpret_cast<DriverLaunch>(driver_entry("cuLaunchKernel"));
  return launch;
}

}  // namespace

// The driver itself takes less time than the runtime, which first looks up what the function is.
cudaError_t queue_blocks(const Launch& launch, unsigned n_blocks, const void* args) {
  void* parameters[] = {const_cast<void*>(args)};
  const auto n_threads = static_cast<unsigned>(launch.entry.n_threads);
  const auto smem_bytes = static_cast<unsigned>(launch.entry.smem_bytes);
  if (launch.handle != nullptr && driver_launch() != nullptr) {
    const auto kernel = reinterpret_cast<CUfunction>(const_cast<void*>(launch.handle));
    const CUresult status = driver_launch()(kernel, n_blocks, 1, 1, n_threads, 1, 1, smem_bytes,
                                            launch.stream, parameters, nullptr);
    if (status == CUDA_SUCCESS) return cudaSuccess;
    // Nothing was queued. The runtime makes the device's context current, which a thread that
    // never called it lacks; or says in its own words what is wrong.
  }
  return cudaLaunchKernel(launch.entry.function, dim3(n_blocks), dim3(n_threads), parameters,
                          smem_bytes, launch.stream);
}

}  // namespace flash
