// From the argument record that callers pass to what a backward kernel of the Hopper family takes.
#pragma once

#include "flash/core/registry.h"
#include "flash/core/variant.h"
#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd/config.h"

namespace flash::sm90_bwd {

// Throws std::invalid_argument for strides that the copy engine does not take.
void check_copied(const KernelEntry& entry, const BackwardArgs& args);

// The same, and without memory for the sums of dQ.
void check_copied_and_summed(const KernelEntry& entry, const BackwardArgs& args);

// A map that few kernels need, and the rows of its boxes.
struct Narrow {
  enum Of { kNothing, kQueryGradients, kKeyChunks } of = kNothing;
  int rows = 0;
};

// `args` is checked (check_backward_args). Throws CudaError if the driver refuses a tensor.
BackwardKernelArgs kernel_args(const HopperBackwardKernelConfig& config, Variant variant,
                               const BackwardArgs& args, Narrow narrow = {});

}  // namespace flash::sm90_bwd
