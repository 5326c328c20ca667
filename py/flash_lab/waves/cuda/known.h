// Kernels whose bottleneck is known by construction. Each runs once, checks its result, and is
// named known_<what limits it>; known_main.cpp runs them, bottleneck_cli.py puts them under ncu.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define KNOWN_CHECK(call)                                                \
  do {                                                                   \
    const cudaError_t known_status = (call);                             \
    if (known_status != cudaSuccess) {                                   \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(known_status));                    \
      std::exit(3);                                                      \
    }                                                                    \
  } while (false)

namespace known {

// Device memory of `count` elements, zeroed, freed at the end.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    KNOWN_CHECK(cudaMalloc(&data_, count * sizeof(T)));
    KNOWN_CHECK(cudaMemset(data_, 0, count * sizeof(T)));
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  size_t count() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// Waits for the kernel and fetches its result.
template <typename T>
T* fetch(const Buffer<T>& buffer) {
  KNOWN_CHECK(cudaGetLastError());
  KNOWN_CHECK(cudaDeviceSynchronize());
  T* const host = static_cast<T*>(std::malloc(buffer.count() * sizeof(T)));
  KNOWN_CHECK(cudaMemcpy(host, buffer.data(), buffer.count() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

// Each runs its kernel on a GPU with `sms` multiprocessors; false: its result is wrong.
bool run_memory_bound(int sms);
bool run_bank_conflicts(int sms);
bool run_spilling(int sms);
bool run_low_occupancy(int sms);
bool run_tensor_bound(int sms);

}  // namespace known
