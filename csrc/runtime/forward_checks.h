// The last check of launch arguments before they reach a kernel.
//
// Python checks tensors and explains in the user's terms; this check keeps any caller of the
// library from an illegal address. It costs a few nanoseconds.
#pragma once

#include <string>

#include "flash/core/args.h"
#include "flash/core/registry.h"

namespace flash {

// Throws std::invalid_argument that names the kernel and the problem.
[[noreturn]] void refuse(const KernelEntry& entry, const std::string& problem);

// What no family takes is refused: the message names the argument, its value and what is accepted.
void check_forward_args(const KernelEntry& entry, const ForwardArgs& args);

// Tiles of `rows` query rows: one per query block, head and batch entry. Checked to fit a grid.
unsigned forward_tiles(const KernelEntry& entry, const ForwardArgs& args, int rows);

}  // namespace flash
