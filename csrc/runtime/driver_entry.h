// Functions of the driver, by way of the runtime, so that the library does not link libcuda and
// imports without a driver.
#pragma once

namespace flash {

// Null: this driver has no function of that name as CUDA 12.0 declares it. Throws CudaError for
// what CUDA reports.
void* driver_entry(const char* name);

}  // namespace flash
