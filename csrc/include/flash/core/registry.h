// The table of the kernels in this build. The table itself is generated
// (registry.cpp.jinja).
#pragma once

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

// A row of the table. `config` is kept by address.
template <typename Config>
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
