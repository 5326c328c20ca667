#include "driver_entry.h"

#include <cuda_runtime_api.h>

#include "flash/core/error.h"

namespace flash {

void* driver_entry(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  FLASH_CHECK_CUDA(
      cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found));
#else
  FLASH_CHECK_CUDA(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
  return found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace flash
