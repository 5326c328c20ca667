// The configuration of the Ampere family's backward pass that serves: that of the other one.
#pragma once

#include "flash/sm80_bwd/config.h"

namespace flash::sm80_bwd_serve {

using AmpereServeBackwardKernelConfig = sm80_bwd::AmpereBackwardKernelConfig;

}  // namespace flash::sm80_bwd_serve
