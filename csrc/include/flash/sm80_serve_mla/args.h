// Launch arguments of the Ampere family's serving kernels for MLA: what callers pass, as it is.
#pragma once

#include "flash/core/serve_args.h"

namespace flash::sm80_serve_mla {

using ServeKernelArgs = ServeArgs;

}  // namespace flash::sm80_serve_mla
