// The table of kernels by configuration.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "flash/core/registry.h"

namespace flash {

// The kernels of one configuration, at least one.
using Configuration = std::span<const KernelEntry>;

// In the order of kernels(). The index is the kernel id that Python passes to launch().
std::span<const Configuration> configurations();

// Throws std::out_of_range for an unknown id.
Configuration configuration_of(std::size_t kernel_id);

// "whole", "any": the names that Python knows.
std::string_view name_of(Variant variant);

// Throws std::invalid_argument for another name.
Variant variant_of(std::string_view name);

}  // namespace flash
