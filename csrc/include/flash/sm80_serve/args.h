// Launch arguments of the Ampere family's serving kernels: what callers pass, as it is.
#pragma once

#include "flash/core/serve_args.h"

namespace flash::sm80_serve {

using ServeKernelArgs = ServeArgs;

}  // namespace flash::sm80_serve
