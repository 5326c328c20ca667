// Launch arguments of the Ampere family's fused backward kernels: what callers pass, as it is.
#pragma once

#include "flash/core/backward_args.h"

namespace flash::sm80_bwd_fused {

using BackwardKernelArgs = BackwardArgs;

}  // namespace flash::sm80_bwd_fused
