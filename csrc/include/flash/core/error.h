// CUDA errors as C++ exceptions that say which call failed, where, and why.
//
// This header needs no CUDA; who uses FLASH_CHECK_CUDA includes <cuda_runtime_api.h>.
#pragma once

#include <stdexcept>

namespace flash {

// Python sees it as flash_attention._C.CudaError, a RuntimeError.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Clears the runtime's error state, so that the next call does not report this one, and throws.
// `code` is a cudaError_t.
[[noreturn]] void throw_cuda_error(int code, const char* expression, const char* file, int line);

}  // namespace flash

#define FLASH_CHECK_CUDA(expression)                                                              \
  do {                                                                                            \
    const auto flash_status = (expression);                                                       \
    if (flash_status != cudaSuccess) {                                                            \
      ::flash::throw_cuda_error(static_cast<int>(flash_status), #expression, __FILE__, __LINE__); \
    }                                                                                             \
  } while (false)
