#include "launcher.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "build_info.h"
#include "device_guard.h"
#include "family.h"
#include "flash/core/error.h"
#include "forward_checks.h"

namespace flash {
namespace {

const KernelEntry& entry_of(std::size_t kernel_id) {
  const auto table = kernels();
  if (kernel_id < table.size()) return table[kernel_id];
  throw std::out_of_range("kernel id " + std::to_string(kernel_id) + ": this build has " +
                          std::to_string(table.size()) + " kernels");
}

// One of the two kernels of an entry. `mark` numbers all of them.
struct Kernel {
  const KernelEntry& entry;
  const void* function;
  std::size_t mark;
};

Kernel kernel_of(std::size_t kernel_id, bool general) {
  const KernelEntry& entry = entry_of(kernel_id);
  if (!general) return {entry, entry.function, 2 * kernel_id};
  if (entry.general != nullptr) return {entry, entry.general, 2 * kernel_id + 1};
  throw std::invalid_argument(std::string(entry.name) + entry.family->why_no_general(entry));
}

// Which devices a kernel is ready for: one bit per device, one word per kernel. Attributes belong
// to a device's context, so "set once" for all devices would leave the second one without.
class ReadyMarks {
 public:
  static constexpr int kDevices = 64;
  bool get(std::size_t mark, int device) const {
    return device < kDevices && (marks_[mark].load(std::memory_order_acquire) & bit(device));
  }
  void set(std::size_t mark, int device) {
    if (device < kDevices) marks_[mark].fetch_or(bit(device), std::memory_order_release);
  }
  void clear(std::size_t mark, int device) {
    if (device < kDevices) marks_[mark].fetch_and(~bit(device), std::memory_order_release);
  }

 private:
  static std::uint64_t bit(int device) { return std::uint64_t{1} << device; }
  std::vector<std::atomic<std::uint64_t>> marks_ =
      std::vector<std::atomic<std::uint64_t>>(2 * kernels().size());
};

ReadyMarks& ready_marks() {
  static ReadyMarks marks;
  return marks;
}

// Setting attributes loads the kernel's code, which a capture in "global" mode forbids to all
// threads. It does not touch the captured stream, so this thread may opt out for the moment.
class RelaxedCapture {
 public:
  RelaxedCapture() { FLASH_CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

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
  throw CudaError(std::string(entry.name) + " was built for " + build_info::kArchitectures +
                  ", but device " + std::to_string(device) + " (" + name +
                  ") has compute capability " + capability +
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

void allow_shared_memory(const Kernel& kernel, int device) {
  const KernelEntry& entry = kernel.entry;
  const int needed = entry.smem_bytes;
  int allowed = 0;
  FLASH_CHECK_CUDA(
      cudaDeviceGetAttribute(&allowed, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (needed > allowed) {
    throw CudaError(std::string(entry.name) + " needs " + std::to_string(needed) +
                    " bytes of shared memory, but a thread block of device " +
                    std::to_string(device) + " can have " + std::to_string(allowed));
  }
  FLASH_CHECK_KERNEL_CALL(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, needed),
      entry, device);
}

// The device is current. Once per kernel and device; two threads that come at once wait for each
// other.
void make_ready(const Kernel& kernel, int device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (ready_marks().get(kernel.mark, device)) return;
  const RelaxedCapture relaxed;
  allow_shared_memory(kernel, device);
  kernel.entry.family->prepare(device);
  ready_marks().set(kernel.mark, device);
}

}  // namespace

void launch(std::size_t kernel_id, const ForwardArgs& args, int device, cudaStream_t stream) {
  const KernelEntry& entry = entry_of(kernel_id);
  const Family& family = *entry.family;
  check_forward_args(entry, args);
  family.check(entry, args);
  const Kernel kernel = kernel_of(kernel_id, family.needs_general(entry, args));
  const unsigned n_tiles = family.n_tiles(entry, args);
  const DeviceGuard guard(device);
  if (!ready_marks().get(kernel.mark, device)) make_ready(kernel, device);

  const cudaError_t status = family.queue({.entry = entry,
                                           .function = kernel.function,
                                           .n_tiles = n_tiles,
                                           .device = device,
                                           .stream = stream},
                                          args);
  if (status == cudaSuccess) return;
  // After a cudaDeviceReset the attribute is lost: the next call shall set it again.
  ready_marks().clear(kernel.mark, device);
  FLASH_CHECK_KERNEL_CALL(status, entry, device);
}

bool has_general(std::size_t kernel_id) { return entry_of(kernel_id).general != nullptr; }

KernelAttributes kernel_attributes(std::size_t kernel_id, int device, bool general) {
  const Kernel kernel = kernel_of(kernel_id, general);
  const KernelEntry& entry = kernel.entry;
  const DeviceGuard guard(device);
  if (!ready_marks().get(kernel.mark, device)) make_ready(kernel, device);
  cudaFuncAttributes found{};
  FLASH_CHECK_KERNEL_CALL(cudaFuncGetAttributes(&found, kernel.function), entry, device);
  int blocks = 0;
  FLASH_CHECK_KERNEL_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                              &blocks, kernel.function, entry.n_threads, entry.smem_bytes),
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
