// Makes a device current for a scope.
#pragma once

#include <cuda_runtime_api.h>

#include "flash/core/error.h"

namespace flash {

// The first device, where there is no other: it is always current.
inline bool is_only_device(int device) {
  static const bool is_one = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
  }();
  return is_one && device == 0;
}

// Costs one thread-local read where the device is current already, the usual case.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (is_only_device(device)) return;
    FLASH_CHECK_CUDA(cudaGetDevice(&previous_));
    if (previous_ != device) {
      FLASH_CHECK_CUDA(cudaSetDevice(device));
      changed_ = true;
    }
  }
  ~DeviceGuard() {
    // Nothing to do about an error here: it is sticky, and the next call reports it.
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace flash
