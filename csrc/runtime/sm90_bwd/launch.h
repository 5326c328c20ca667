// From the argument record that callers pass to what a backward kernel of the Hopper family takes.
#pragma once

#include "flash/core/registry.h"
#include "flash/core/variant.h"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/config.h"

namespace flash::sm90_bwd {

// Throws std::invalid_argument for strides that the copy engine does not take.
void check_copied(const KernelEntry& entry, const BackwardArgs& args);

// `args` is checked (check_backward_args). `d_q_rows`: of a box of the map of dQ, or 0, and there
// is none. Throws CudaError if the driver refuses a tensor.
BackwardKernelArgs kernel_args(const HopperBackwardKernelConfig& config, Variant variant,
                               const BackwardArgs& args, int d_q_rows = 0);

}  // namespace flash::sm90_bwd
