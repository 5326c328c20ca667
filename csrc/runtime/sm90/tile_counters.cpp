#include "sm90/tile_counters.h"

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "flash/core/error.h"

namespace flash::sm90 {
namespace {

constexpr int kStride = 32;  // a line of L2 for each counter
constexpr std::size_t kBytes = std::size_t{kStreamsWithCounters} * kStride * sizeof(std::int32_t);

// Never freed: launches may be under way until the process ends.
struct DeviceCounters {
  std::int32_t* memory = nullptr;
  // A stream's id is never used again, unlike its handle.
  std::unordered_map<unsigned long long, std::int32_t*> of_stream;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<int, DeviceCounters> of_device;
};

Registry& registry() {
  static Registry* const kept = new Registry;
  return *kept;
}

// On a stream of its own: the default stream may not be touched while others are captured.
std::int32_t* allocate_zeros() {
  std::int32_t* memory = nullptr;
  FLASH_CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory), kBytes));
  cudaStream_t stream = nullptr;
  FLASH_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  FLASH_CHECK_CUDA(cudaMemsetAsync(memory, 0, kBytes, stream));
  FLASH_CHECK_CUDA(cudaStreamSynchronize(stream));
  FLASH_CHECK_CUDA(cudaStreamDestroy(stream));
  return memory;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream beside a capture: the launch itself will say so
  return true;
}

}  // namespace

void prepare_tile_counters(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  DeviceCounters& counters = all.of_device[device];
  if (counters.memory == nullptr) counters.memory = allocate_zeros();
}

std::int32_t* tile_counter(int device, cudaStream_t stream) {
  if (is_captured(stream)) return nullptr;
  unsigned long long id = 0;
  FLASH_CHECK_CUDA(cudaStreamGetId(stream, &id));

  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  DeviceCounters& counters = all.of_device[device];
  const auto known = counters.of_stream.find(id);
  if (known != counters.of_stream.end()) return known->second;
  const std::size_t next = counters.of_stream.size();
  if (counters.memory == nullptr || next == kStreamsWithCounters) return nullptr;
  return counters.of_stream[id] = counters.memory + next * kStride;
}

}  // namespace flash::sm90
