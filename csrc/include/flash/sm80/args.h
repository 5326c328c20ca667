// Launch arguments of the Ampere family's forward kernels: what callers pass, as it is.
#pragma once

#include "flash/core/args.h"

namespace flash::sm80 {

using ForwardKernelArgs = ForwardArgs;

}  // namespace flash::sm80
