// The tables of the kernels in this build, and of the families. The tables themselves are generated
// (registry.cpp.jinja).
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "flash/core/dtype.h"
#include "flash/core/variant.h"

namespace flash {

struct Family;  // how the kernels of a family are launched: csrc/runtime/family.h

// One kernel. Those of one configuration differ in their variants.
struct KernelEntry {
  const char* configuration;  // KernelConfig.kernel_name() in Python
  Variant variant;
  const Family* family;
  const void* config;  // the family's own struct, which only the family reads
  DType dtype;
  int n_threads;         // of a thread block
  int smem_bytes;        // of a thread block, dynamic
  const void* function;  // address of the `__global__` function's host stub
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

// A configuration whose kernels differ in their sizes.
template <typename Config>
concept SizedByVariant = requires(const Config& config, Variant variant) {
  { config.n_threads(variant) } -> std::same_as<int>;
  { config.smem_bytes(variant) } -> std::same_as<int>;
};

// A row of the table. `config` is kept by address.
template <KernelConfig Config>
constexpr KernelEntry kernel_entry(const char* configuration, Variant variant, const Family& family,
                                   const Config& config, const void* function) {
  int n_threads = config.n_threads();
  int smem_bytes = config.smem_bytes();
  if constexpr (SizedByVariant<Config>) {
    n_threads = config.n_threads(variant);
    smem_bytes = config.smem_bytes(variant);
  }
  return {.configuration = configuration,
          .variant = variant,
          .family = &family,
          .config = &config,
          .dtype = config.dtype,
          .n_threads = n_threads,
          .smem_bytes = smem_bytes,
          .function = function};
}

// Sorted by configuration, then by variant.
std::span<const KernelEntry> kernels();

// How kernels of a family that the build lacks become rows of the table.
struct FamilyEntry {
  const char* name;          // KernelConfig.FAMILY in Python
  std::size_t config_bytes;  // of the family's own struct
  // `config` points to such a struct, and is kept by address.
  KernelEntry (*entry)(const char* configuration, Variant variant, const void* config,
                       const void* function);
};

template <KernelConfig Config, const Family& kFamily>
constexpr FamilyEntry family_entry(const char* name) {
  return {.name = name,
          .config_bytes = sizeof(Config),
          .entry = [](const char* configuration, Variant variant, const void* config,
                      const void* function) {
            return kernel_entry(configuration, variant, kFamily,
                                *static_cast<const Config*>(config), function);
          }};
}

// All, whether or not the build has kernels of theirs.
std::span<const FamilyEntry> families();

}  // namespace flash
