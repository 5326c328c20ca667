// Launch arguments of the Ampere family's backward kernels that serve: what callers pass, as it is.
#pragma once

#include "flash/core/backward_args.h"

namespace flash::sm80_bwd_serve {

using BackwardKernelArgs = BackwardArgs;

}  // namespace flash::sm80_bwd_serve
