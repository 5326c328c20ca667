// The table of the kernels in this build. The table itself is generated
// (registry.cpp.jinja).
#pragma once

#include <concepts>
#include <span>

#include "flash/core/dtype.h"

namespace flash {

struct Family;  // how the kernels of a family are launched: csrc/runtime/family.h

struct KernelEntry {
  const char* name;  // the kernel's symbol, KernelConfig.kernel_name() in Python
  const Family* family;
  const void* config;  // the family's own struct, which only the family reads
  DType dtype;
  int n_threads;         // of a thread block
  int smem_bytes;        // of a thread block, dynamic
  const void* function;  // address of the `__global__` function's host stub
  // The same configuration's kernel for any lengths and the causal mask, where `function` takes
  // whole blocks only. Null: not in this build, or `function` takes everything.
  const void* general;
};

// What a configuration tells of its kernels to those who do not know its family: the code generator
// (csrc/templates) and the launcher.
template <typename Config>
concept KernelConfig = requires(const Config& config) {
  { config.dtype } -> std::convertible_to<DType>;
  { config.n_threads() } -> std::same_as<int>;
  { config.smem_bytes() } -> std::same_as<int>;
  { config.min_blocks_per_sm() } -> std::same_as<int>;
};

// A row of the table. `config` is kept by address.
template <KernelConfig Config>
constexpr KernelEntry kernel_entry(const char* name, const Family& family, const Config& config,
                                   const void* function, const void* general) {
  return {.name = name,
          .family = &family,
          .config = &config,
          .dtype = config.dtype,
          .n_threads = config.n_threads(),
          .smem_bytes = config.smem_bytes(),
          .function = function,
          .general = general};
}

// Sorted by name; the index of an entry is the kernel id that Python passes to launch().
std::span<const KernelEntry> kernels();

}  // namespace flash
