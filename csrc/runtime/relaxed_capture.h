// Lets this thread load code while another captures a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "flash/core/error.h"

namespace flash {

// A capture in "global" mode forbids all threads to load code, which setting a kernel's attributes
// does too. That does not touch the captured stream, so this thread may opt out for the moment.
class RelaxedCapture {
 public:
  RelaxedCapture() { FLASH_CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace flash
