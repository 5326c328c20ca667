"""The launcher without a GPU, and without a family of ours: linked with a stand-in for CUDA and a
family that this test makes up, it does what the table of that family says."""

from __future__ import annotations

from tests.cpp_programs import lines_of, runtime_flags, runtime_sources

TOY = r"""
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include "build_info.h"
#include "family.h"
#include "forward_checks.h"
#include "launcher.h"
#include "loaded_kernels.h"

const char* const flash::build_info::kArchitectures = "sm_80";
static cudaError_t status = cudaSuccess;  // of a launch by the runtime
static CUresult driver_status = CUDA_SUCCESS;
static bool has_driver = true, has_handles = true, has_early = true;
[[maybe_unused]] static void* encoder = nullptr;  // of tensor maps

static void print_launch(const void* function, unsigned blocks, unsigned threads, size_t bytes,
                         void** parameters, void* stream) {
  std::printf("launch %s %u x %u, %zu bytes, record %d, stream %p\n",
              static_cast<const char*>(function), blocks, threads, bytes,
              **reinterpret_cast<int**>(parameters), stream);
}

static CUresult launch_by_driver(CUfunction kernel, unsigned blocks, unsigned y, unsigned z,
                                 unsigned threads, unsigned y_threads, unsigned z_threads,
                                 unsigned bytes, CUstream stream, void** parameters, void** extra) {
  if (y * z * y_threads * z_threads != 1 || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver_status != CUDA_SUCCESS) return driver_status;
  print_launch(kernel, blocks, threads, bytes, parameters, stream);
  return CUDA_SUCCESS;
}

[[maybe_unused]] static CUresult launch_early(const CUlaunchConfig* c, CUfunction kernel,
                                              void** parameters, void** extra) {
  if (c->numAttrs != 1 || c->attrs->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
      c->attrs->value.programmaticStreamSerializationAllowed != 1) return CUDA_ERROR_INVALID_VALUE;
  if (driver_status == CUDA_SUCCESS) std::printf("early: ");
  return launch_by_driver(kernel, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                          c->blockDimZ, c->sharedMemBytes, c->hStream, parameters, extra);
}

extern "C" {
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { std::printf("device %d\n", device); return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 4096;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int bytes) {
  std::printf("allow %s %d\n", static_cast<const char*>(function), bytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** parameters,
                             size_t bytes, cudaStream_t stream) {
  std::printf("runtime: ");
  print_launch(function, grid.x, block.x, bytes, parameters, stream);
  return status;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool is_early = std::strcmp(name, "cuLaunchKernelEx") == 0 && has_early;
  *function = is_early ? reinterpret_cast<void*>(&launch_early)
              : std::strcmp(name, "cuLaunchKernel") == 0
                  ? reinterpret_cast<void*>(&launch_by_driver) : encoder;
  if (!has_driver) *function = nullptr;
  *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  std::printf("handle %s\n", static_cast<const char*>(function));
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return has_handles ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, size_t) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) { return cudaSuccess; }
// A kernel's handle is its name, as above.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  std::printf("load %s\n", static_cast<const char*>(code));
  *library = nullptr;
  return *static_cast<const char*>(code) == 'c' ? cudaSuccess : cudaErrorInvalidKernelImage;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  *kernel = reinterpret_cast<cudaKernel_t>(::strdup(name));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int*) { return cudaSuccess; }
}

namespace flash::toy {

struct Config {
  DType dtype;
  int rows;
  constexpr int n_threads() const { return 64; }
  constexpr int smem_bytes() const { return 1024; }
  constexpr int min_blocks_per_sm() const { return 1; }
};

extern const Family kFamily;
const Family kFamily = {
    .check = [](const KernelEntry& entry, const ForwardArgs& args) {
      if (args.softmax_scale == 7) refuse(entry, "not 7");
    },
    .variant_for = [](const KernelEntry&, const ForwardArgs& args) {
      return args.causal != 0 ? Variant::kAny : Variant::kWhole;
    },
    .what_it_takes = [](const KernelEntry&) { return std::string(" is not for causal"); },
    .n_tiles = [](const KernelEntry& entry, const ForwardArgs& args) {
      return forward_tiles(entry, args, config_of<Config>(entry).rows);
    },
    .prepare = [](int device) { std::printf("prepare %d\n", device); },
    .queue = [](const Launch& launch, const ForwardArgs& args) {
      const int record = 100 * args.batch + launch.device;
      const auto queue = args.seqlen_k == 6 ? queue_blocks_early : queue_blocks;
      return queue(launch, launch.n_tiles + 1, &record);
    }};

constexpr Config kBoth{DType::kFP16, 16};
constexpr Config kWhole{DType::kBF16, 32};

}  // namespace flash::toy

static const flash::KernelEntry kKernels[] = {
    kernel_entry("both", flash::Variant::kWhole, flash::toy::kFamily, flash::toy::kBoth, "plain"),
    kernel_entry("both", flash::Variant::kAny, flash::toy::kFamily, flash::toy::kBoth, "general"),
    kernel_entry("whole", flash::Variant::kWhole, flash::toy::kFamily, flash::toy::kWhole,
                 "alone")};
std::span<const flash::KernelEntry> flash::kernels() { return kKernels; }
static const flash::FamilyEntry kFamilies[] = {
    flash::family_entry<flash::toy::Config, flash::toy::kFamily>("toy")};
std::span<const flash::FamilyEntry> flash::families() { return kFamilies; }

[[maybe_unused]] static std::size_t load(std::string_view config, const char* family = "toy",
                                         const char* code = "cubin") {
  const flash::MachineCode any{flash::Variant::kAny, "loaded", code};
  try {
    return flash::load_kernels(family, "late", config, {&any, 1});
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 99;
  }
}

static flash::ForwardArgs args() {
  flash::ForwardArgs args{};
  args.q = args.k = args.v = reinterpret_cast<void*>(0x1000);
  args.o = reinterpret_cast<void*>(0x2000);
  args.batch = 2; args.seqlen_q = 33; args.seqlen_k = 5; args.n_heads_q = args.n_heads_kv = 3;
  args.softmax_scale = 1;
  return args;
}

static void launch(std::size_t kernel, const flash::ForwardArgs& args, int device = 0) {
  try {
    flash::launch(kernel, args, device, reinterpret_cast<cudaStream_t>(0x50));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}
"""


SOURCES = ("launcher", "configurations", "loaded_kernels", "forward_checks", "error",
           "queue_blocks", "driver_entry")  # fmt: skip


def run(main: str) -> list[str]:
    """What a program prints that has the launcher's objects, without those of any family."""
    text = f"{TOY}int main() {{ auto a = args(); {main} }}\n"
    return lines_of(text, sources=runtime_sources(*SOURCES), flags=runtime_flags())


def test_a_family_is_what_its_table_says() -> None:
    """Prepared once for each kernel and device; tiles, blocks and record are the family's."""
    main = "launch(0, a); launch(0, a); a.causal = 1; a.batch = 1; launch(0, a); launch(0, a, 1);"
    assert run(main) == [
        "allow plain 1024",
        "prepare 0",
        "handle plain",
        "launch plain 19 x 64, 1024 bytes, record 200, stream 0x50",
        "launch plain 19 x 64, 1024 bytes, record 200, stream 0x50",
        "allow general 1024",
        "prepare 0",
        "handle general",
        "launch general 10 x 64, 1024 bytes, record 100, stream 0x50",
        "device 1",
        "allow general 1024",
        "prepare 1",
        "handle general",
        "launch general 10 x 64, 1024 bytes, record 101, stream 0x50",
        "device 0",
    ]


def test_what_a_family_refuses_is_not_queued() -> None:
    main = """
    a.softmax_scale = 7; launch(0, a); a.seqlen_q = 0; launch(0, a);
    a = args(); a.causal = 1; launch(1, a);
    a = args(); a.batch = 2000000000; launch(0, a);
    launch(2, a);"""
    assert run(main) == [
        "both: not 7",
        "both: seqlen_q = 0: expected at least 1",
        "whole is not for causal",
        "both: query blocks (of 16 rows) * n_heads_q * batch exceed 2147482623",
        "kernel id 2: this build has 2 kernels",
    ]


LAUNCH = "launch alone 13 x 64, 1024 bytes, record 200, stream 0x50"
READY = ["allow alone 1024", "prepare 0", "handle alone"]


def test_after_an_error_a_kernel_is_made_ready_again() -> None:
    """The runtime, asked after the driver, says what is wrong."""
    main = """
    driver_status = CUDA_ERROR_UNKNOWN; status = cudaErrorUnknown; launch(1, a);
    driver_status = CUDA_SUCCESS; launch(1, a); launch(1, a);"""
    lines = run(main)
    assert lines[:4] == [*READY, f"runtime: {LAUNCH}"]
    assert lines[4].startswith("an error (999): an error; status at ")
    assert lines[5:] == [*READY, LAUNCH, LAUNCH]


def test_the_runtime_launches_what_the_driver_does_not() -> None:
    """A thread without a context, which the runtime makes current; a driver or a runtime that lacks
    the function."""
    launch = "launch(1, a); launch(1, a);"
    context = f"driver_status = CUDA_ERROR_INVALID_CONTEXT; {launch}"
    again = f"{context} driver_status = CUDA_SUCCESS; {launch}"
    by_runtime = [*READY, *[f"runtime: {LAUNCH}"] * 2]
    assert run(again) == [*by_runtime, LAUNCH, LAUNCH]
    assert run(f"has_driver = false; {launch}") == by_runtime
    assert run(f"has_handles = false; {launch}") == by_runtime


def test_a_kernel_that_waits_for_those_before_it_is_queued_early() -> None:
    """Or like any other, where the driver does not."""
    launch = "a.seqlen_k = 6; launch(1, a);"
    assert run(launch) == [*READY, f"early: {LAUNCH}"]
    assert run(f"has_early = false; {launch}") == [*READY, LAUNCH]
    for lack in ("driver_status = CUDA_ERROR_INVALID_CONTEXT", "has_handles = false"):
        assert run(f"{lack}; {launch}") == [*READY, f"runtime: {LAUNCH}"]


def test_a_kernel_that_was_loaded_is_launched_like_one_of_the_build() -> None:
    """With the sizes of its own configuration, whose bytes need not outlive the call."""
    main = r"""
    a.causal = 1;
    {
      std::string config(8, '\0');
      const int fields[] = {5, 11};
      std::memcpy(config.data(), fields, 8);
      std::printf("id %zu\n", load(config));
    }
    launch(2, a); launch(2, a); a.causal = 0; launch(2, a); launch(0, a); launch(3, a);"""
    assert run(main) == [
        "load cubin",
        "id 2",
        "allow loaded 1024",
        "prepare 0",
        "launch loaded 19 x 64, 1024 bytes, record 200, stream 0x50",
        "launch loaded 19 x 64, 1024 bytes, record 200, stream 0x50",
        "late is not for causal",
        "allow plain 1024",
        "prepare 0",
        "handle plain",
        "launch plain 19 x 64, 1024 bytes, record 200, stream 0x50",
        "kernel id 3: this build has 3 kernels",
    ]


def test_what_cannot_be_loaded_is_not_in_the_table() -> None:
    main = """
    const std::string config(8, 'x');
    load(config, "none"); load(config.substr(1)); load(config, "toy", "damaged"); launch(2, a);"""
    lines = run(main)
    assert lines[0] == "there is no family 'none'"
    assert lines[1].startswith("late: the configuration has 7 bytes: expected the 8 of the family")
    assert lines[2] == "load damaged" and lines[3].startswith("an error (200)")
    assert lines[4] == "kernel id 2: this build has 2 kernels"
