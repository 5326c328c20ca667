#include "launcher.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "build_info.h"
#include "configurations.h"
#include "device_guard.h"
#include "family.h"
#include "flash/core/error.h"
#include "forward_checks.h"
#include "relaxed_capture.h"

namespace flash {
namespace {

const KernelEntry& kernel_of(Configuration configuration, Variant variant) {
  for (const KernelEntry& entry : configuration) {
    if (entry.variant == variant) return entry;
  }
  const KernelEntry& other = configuration.front();
  const bool has_problems = other.family->what_it_takes != nullptr;
  throw std::invalid_argument(std::string(other.configuration) +
                              (has_problems ? other.family->what_it_takes(other)
                                            : " has no kernel " + std::string(name_of(variant))));
}

// Which devices a kernel is ready for: one bit per device, one word per kernel of the table.
// Attributes belong to a device's context, so "set once" for all devices would leave the second one
// without.
class ReadyMarks {
 public:
  static constexpr int kDevices = 64;
  bool get(const KernelEntry& entry, int device) const {
    return device < kDevices &&
           (marks_[index_of(entry)].load(std::memory_order_acquire) & bit(device));
  }
  void set(const KernelEntry& entry, int device) {
    if (device < kDevices) marks_[index_of(entry)].fetch_or(bit(device), std::memory_order_release);
  }
  void clear(const KernelEntry& entry, int device) {
    if (device < kDevices) {
      marks_[index_of(entry)].fetch_and(~bit(device), std::memory_order_release);
    }
  }

 private:
  static std::uint64_t bit(int device) { return std::uint64_t{1} << device; }
  std::vector<std::atomic<std::uint64_t>> marks_ =
      std::vector<std::atomic<std::uint64_t>>(kernels().size() + kMostLoaded);
};

ReadyMarks& ready_marks() {
  static ReadyMarks marks;
  return marks;
}

bool means_no_code_for_device(cudaError_t status) {
  return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
         status == cudaErrorUnsupportedPtxVersion;
}

[[noreturn]] void throw_no_code(cudaError_t status, const KernelEntry& entry, int device) {
  cudaGetLastError();
  cudaDeviceProp properties{};
  std::string name = "unknown", capability = "unknown";
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
    name = properties.name;
    capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  }
  cudaGetLastError();
  throw CudaError(std::string(entry.configuration) + " was built for " +
                  build_info::kArchitectures + ", but device " + std::to_string(device) + " (" +
                  name + ") has compute capability " + capability +
                  ": rebuild on this machine, or with TORCH_CUDA_ARCH_LIST=" + capability + " (" +
                  cudaGetErrorName(status) + ")");
}

void check_kernel_call(cudaError_t status, const char* expression, int line,
                       const KernelEntry& entry, int device) {
  if (status == cudaSuccess) return;
  if (means_no_code_for_device(status)) throw_no_code(status, entry, device);
  throw_cuda_error(status, expression, __FILE__, line);
}

#define FLASH_CHECK_KERNEL_CALL(expression, entry, device) \
  check_kernel_call((expression), #expression, __LINE__, entry, device)

void allow_shared_memory(const KernelEntry& entry, int device) {
  const int needed = entry.smem_bytes;
  int allowed = 0;
  FLASH_CHECK_CUDA(
      cudaDeviceGetAttribute(&allowed, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (needed > allowed) {
    throw CudaError(std::string(entry.configuration) + " needs " + std::to_string(needed) +
                    " bytes of shared memory, but a thread block of device " +
                    std::to_string(device) + " can have " + std::to_string(allowed));
  }
  FLASH_CHECK_KERNEL_CALL(
      cudaFuncSetAttribute(entry.function, cudaFuncAttributeMaxDynamicSharedMemorySize, needed),
      entry, device);
}

// What the driver knows kernels by. Unlike a function, it belongs to no context.
class Handles {
 public:
  std::atomic<const void*>& of(const KernelEntry& entry) { return handles_[index_of(entry)]; }

 private:
  std::vector<std::atomic<const void*>> handles_ =
      std::vector<std::atomic<const void*>>(kernels().size() + kMostLoaded);
};

Handles& handles() {
  static Handles all;
  return all;
}

const void* find_handle(const KernelEntry& entry) {
  if (is_loaded(entry)) return entry.function;
#if CUDART_VERSION >= 12080
  cudaKernel_t kernel = nullptr;
  if (cudaGetKernel(&kernel, entry.function) == cudaSuccess) return kernel;
  cudaGetLastError();
#endif
  return nullptr;
}

// Two threads that come at once wait for each other.
void make_ready_once(const KernelEntry& entry, int device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (ready_marks().get(entry, device)) return;
  const RelaxedCapture relaxed;
  allow_shared_memory(entry, device);
  entry.family->prepare(device);
  handles().of(entry).store(find_handle(entry), std::memory_order_relaxed);
  ready_marks().set(entry, device);
}

}  // namespace

const void* make_kernel_ready(const KernelEntry& entry, int device) {
  if (!ready_marks().get(entry, device)) make_ready_once(entry, device);
  return handles().of(entry).load(std::memory_order_relaxed);
}

void check_queued(cudaError_t status, const KernelEntry& entry, int device) {
  if (status == cudaSuccess) return;
  // After a cudaDeviceReset the attribute is lost: the next call shall set it again.
  ready_marks().clear(entry, device);
  FLASH_CHECK_KERNEL_CALL(status, entry, device);
}

void launch(std::size_t kernel_id, const ForwardArgs& args, int device, cudaStream_t stream) {
  const Configuration configuration = configuration_of(kernel_id);
  const Family& family = *configuration.front().family;
  if (family.backward != nullptr) {
    refuse(configuration.front(), "is of a backward pass: it computes gradients alone");
  }
  if (family.serve != nullptr) {
    refuse(configuration.front(), "serves caches and lengths: launch_serving() launches it");
  }
  check_forward_args(configuration.front(), args);
  family.check(configuration.front(), args);
  const KernelEntry& entry =
      kernel_of(configuration, family.variant_for(configuration.front(), args));
  const unsigned n_tiles = family.n_tiles(entry, args);
  const DeviceGuard guard(device);
  const void* const handle = make_kernel_ready(entry, device);

  const cudaError_t status = family.queue(
      {.entry = entry, .n_tiles = n_tiles, .device = device, .stream = stream, .handle = handle},
      args);
  check_queued(status, entry, device);
}

KernelAttributes kernel_attributes(std::size_t kernel_id, int device, Variant variant) {
  const KernelEntry& entry = kernel_of(configuration_of(kernel_id), variant);
  const DeviceGuard guard(device);
  make_kernel_ready(entry, device);
  cudaFuncAttributes found{};
  FLASH_CHECK_KERNEL_CALL(cudaFuncGetAttributes(&found, entry.function), entry, device);
  int blocks = 0;
  FLASH_CHECK_KERNEL_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                              &blocks, entry.function, entry.n_threads, entry.smem_bytes),
                          entry, device);
  return {
      .registers = found.numRegs,
      .static_shared_bytes = static_cast<int>(found.sharedSizeBytes),
      .dynamic_shared_bytes = entry.smem_bytes,
      .local_bytes = static_cast<int>(found.localSizeBytes),
      .max_threads_per_block = found.maxThreadsPerBlock,
      .blocks_per_multiprocessor = blocks,
      .binary_version = found.binaryVersion,
      .ptx_version = found.ptxVersion,
  };
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or one that is too old: nothing that the next call should
                       // report
  return 0;
}

}  // namespace flash
