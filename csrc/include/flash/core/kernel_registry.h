// The table of the kernels in this build. The table itself is generated
// (kernel_registry.cpp.jinja).
#pragma once

#include <span>
#include <variant>

#include "flash/core/forward_config.h"
#include "flash/core/hopper_forward_config.h"

namespace flash {

// One alternative for each family of kernels.
using KernelConfig = std::variant<FlashForwardKernelConfig, HopperForwardKernelConfig>;

struct KernelEntry {
  const char* name;  // the kernel's symbol, KernelConfig.kernel_name() in Python
  KernelConfig config;
  const void* function;  // address of the `__global__` function's host stub
  // Ampere family: the same configuration's kernel for any lengths and the causal mask; null: not
  // in this build. Hopper family: null, `function` takes everything.
  const void* general;

  int n_threads() const {
    return std::visit([](const auto& family) { return family.n_threads(); }, config);
  }
  int smem_bytes() const {
    return std::visit([](const auto& family) { return family.smem_bytes(); }, config);
  }
};

// Sorted by name; the index of an entry is the kernel id that Python passes to launch().
std::span<const KernelEntry> kernels();

}  // namespace flash
