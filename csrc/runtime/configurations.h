// The table of kernels by configuration: those of the build, then those that were loaded since.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "flash/core/registry.h"

namespace flash {

// The kernels of one configuration, at least one.
using Configuration = std::span<const KernelEntry>;

// In the order of kernels(), then of their addition. The index is the kernel id that Python passes
// to launch(). What is added meanwhile is not in the span, which stays good for ever.
std::span<const Configuration> configurations();

// Adds a configuration: copies its rows, whose pointers must stay good for ever. Returns its id.
// Throws std::length_error when kMostLoaded kernels were added.
std::size_t add_configuration(std::span<const KernelEntry> rows);

inline constexpr std::size_t kMostLoaded = 4096;

// Whether a row of the table was added: its function is a cudaKernel_t.
bool is_loaded(const KernelEntry& row);

// The place of a row of the table, below kernels().size() + kMostLoaded.
std::size_t index_of(const KernelEntry& row);

// Throws std::out_of_range for an unknown id.
Configuration configuration_of(std::size_t kernel_id);

// "whole", "any": the names that Python knows.
std::string_view name_of(Variant variant);

// Throws std::invalid_argument for another name.
Variant variant_of(std::string_view name);

}  // namespace flash
