// What a launch costs the host: by the runtime, and by the driver with a function or a kernel, each
// with a small and with a large record. tests.gpu.host_parts compiles and runs it.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

template <int kBytes>
struct Record {
  char bytes[kBytes];
};

template <int kBytes>
__global__ void nothing(const __grid_constant__ Record<kBytes> record) {}

constexpr int kRounds = 31, kLaunches = 200;
// As much as the kernels of the library have: what the runtime allowed, the driver has to know.
constexpr unsigned kShared = 200 * 1024;

using DriverLaunch = decltype(&cuLaunchKernel);

static void check(bool is_good, const char* what) {
  if (is_good) return;
  std::printf("%s failed\n", what);
  std::exit(1);
}

struct Way {
  const char* name;
  int bytes;
  std::vector<double> times;
};

template <typename Launch>
static void measure(Way& way, Launch launch) {
  check(cudaDeviceSynchronize() == cudaSuccess, "a launch");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) check(launch() == 0, way.name);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  way.times.push_back(time.count() / kLaunches);
}

template <int kBytes>
static void measure_all(DriverLaunch by_driver) {
  const auto* const stub = reinterpret_cast<const void*>(&nothing<kBytes>);
  check(cudaFuncSetAttribute(stub, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) ==
            cudaSuccess,
        "cudaFuncSetAttribute");
  cudaFunction_t function = nullptr;
  cudaKernel_t kernel = nullptr;
  check(cudaGetFuncBySymbol(&function, stub) == cudaSuccess, "cudaGetFuncBySymbol");
  check(cudaGetKernel(&kernel, stub) == cudaSuccess, "cudaGetKernel");
  Record<kBytes> record{};
  void* parameters[] = {&record};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");

  const auto driver = [&](void* handle) {
    return by_driver(static_cast<CUfunction>(handle), 1, 1, 1, 128, 1, 1, kShared, stream,
                     parameters, nullptr);
  };
  Way runtime{"cudaLaunchKernel", kBytes, {}};
  Way of_function{"cuLaunchKernel, CUfunction", kBytes, {}};
  Way of_kernel{"cuLaunchKernel, CUkernel", kBytes, {}};
  for (int round = 0; round < kRounds; ++round) {
    measure(runtime, [&] {
      return cudaLaunchKernel(stub, dim3(1), dim3(128), parameters, kShared, stream);
    });
    measure(of_function, [&] { return driver(function); });
    measure(of_kernel, [&] { return driver(kernel); });
  }
  for (Way* way : {&runtime, &of_function, &of_kernel}) {
    std::sort(way->times.begin(), way->times.end());
    std::printf("%-28s %4d bytes %7.2f us  (least %.2f)\n", way->name, way->bytes,
                way->times[kRounds / 2], way->times.front());
  }
}

int main() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaFree(nullptr) == cudaSuccess, "CUDA");
  check(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &function, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
            found == cudaDriverEntryPointSuccess,
        "cuLaunchKernel");
  measure_all<16>(reinterpret_cast<DriverLaunch>(function));
  measure_all<640>(reinterpret_cast<DriverLaunch>(function));
}
