// From the argument record of a serving call to what a kernel of the Hopper family for MLA takes.
#pragma once

#include "flash/core/serve_args.h"
#include "flash/sm90_serve_mla/args.h"
#include "flash/sm90_serve_mla/config.h"

namespace flash::sm90_serve_mla {

// `args` is checked (check_serve_args). Throws CudaError if the driver refuses a tensor.
ServeKernelArgs kernel_args(const HopperMlaKernelConfig& config, const ServeArgs& args);

}  // namespace flash::sm90_serve_mla
