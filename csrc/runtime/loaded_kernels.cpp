#include "loaded_kernels.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "configurations.h"
#include "flash/core/error.h"
#include "flash/core/registry.h"
#include "relaxed_capture.h"

namespace flash {
namespace {

const FamilyEntry& family_named(std::string_view name) {
  for (const FamilyEntry& family : families()) {
    if (name == family.name) return family;
  }
  throw std::invalid_argument("there is no family '" + std::string(name) + "'");
}

// What a table's row points to. Launches may be under way until the process ends, so that nobody
// ever frees it.
template <typename T>
T* kept(std::string_view bytes, std::size_t size) {
  auto memory = std::make_unique<T[]>(size);
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  return memory.release();
}

#if CUDART_VERSION >= 12080

const void* load(const MachineCode& code) {
  const RelaxedCapture relaxed;
  cudaLibrary_t library = nullptr;  // kept as well
  FLASH_CHECK_CUDA(
      cudaLibraryLoadData(&library, code.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  FLASH_CHECK_CUDA(cudaLibraryGetKernel(&kernel, library, code.symbol.c_str()));
  return kernel;
}

#else

const void* load(const MachineCode& code) {
  throw CudaError(code.symbol + " cannot be loaded: this extension was built with CUDA " +
                  std::to_string(CUDART_VERSION / 1000) + "." +
                  std::to_string(CUDART_VERSION % 1000 / 10) + ", and 12.8 is needed for that");
}

#endif

}  // namespace

std::size_t load_kernels(std::string_view family, std::string_view name, std::string_view config,
                         std::span<const MachineCode> kernels) {
  const FamilyEntry& made = family_named(family);
  if (config.size() != made.config_bytes) {
    throw std::invalid_argument(std::string(name) + ": the configuration has " +
                                std::to_string(config.size()) + " bytes: expected the " +
                                std::to_string(made.config_bytes) + " of the family " + made.name +
                                " (flash_helpers and flash_attention._C are of "
                                "different versions: rebuild)");
  }
  if (kernels.empty()) throw std::invalid_argument(std::string(name) + ": no kernels were given");
  std::vector<const void*> functions;
  for (const MachineCode& code : kernels) functions.push_back(load(code));

  const void* const struct_bytes =
      kept<int>(config, (config.size() + sizeof(int) - 1) / sizeof(int));
  const char* const kept_name = kept<char>(name, name.size() + 1);
  std::vector<KernelEntry> rows;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    rows.push_back(made.entry(kept_name, kernels[i].variant, struct_bytes, functions[i]));
  }
  return add_configuration(rows);
}

}  // namespace flash
