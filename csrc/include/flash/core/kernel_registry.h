// The table of the kernels in this build. The table itself is generated
// (kernel_registry.cpp.jinja).
#pragma once

#include <span>

#include "flash/core/forward_config.h"

namespace flash {

struct KernelEntry {
  const char* name;  // the kernel's symbol, FlashForwardKernelConfig.kernel_name() in Python
  FlashForwardKernelConfig config;
  const void* function;  // address of the `__global__` function's host stub
  // The same configuration's kernel for any lengths and the causal mask; null: not in this build.
  const void* general;
};

// Sorted by name; the index of an entry is the kernel id that Python passes to launch().
std::span<const KernelEntry> kernels();

}  // namespace flash
