// The last check of launch arguments before they reach a kernel.
//
// Python checks tensors and explains in the user's terms; this check keeps any caller of the
// library from an illegal address. It costs a few nanoseconds.
#pragma once

#include "flash/core/forward_args.h"
#include "flash/core/kernel_registry.h"

namespace flash {

// Throws std::invalid_argument that names the argument, its value and what is accepted.
void check_forward_args(const KernelEntry& entry, const ForwardArgs& args);

// Whether a problem is more than whole blocks without a mask, and so needs the general kernel.
bool needs_general(const KernelEntry& entry, const ForwardArgs& args);

// Thread blocks of the launch: one per query block, head and batch entry. Checked to fit the grid.
unsigned forward_grid_size(const KernelEntry& entry, const ForwardArgs& args);

}  // namespace flash
