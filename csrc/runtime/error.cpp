#include "flash/core/error.h"

#include <cuda_runtime_api.h>

#include <string>

namespace flash {

void throw_cuda_error(int code, const char* expression, const char* file, int line) {
  const auto status = static_cast<cudaError_t>(code);
  cudaGetLastError();  // read to clear
  throw CudaError(std::string(cudaGetErrorName(status)) + " (" + std::to_string(code) +
                  "): " + cudaGetErrorString(status) + "; " + expression + " at " + file + ":" +
                  std::to_string(line));
}

}  // namespace flash
