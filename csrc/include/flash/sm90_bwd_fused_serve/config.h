// The configuration of the Hopper family's fused backward pass that serves: that of the other one.
#pragma once

#include "flash/sm90_bwd_fused/config.h"

namespace flash::sm90_bwd_fused_serve {

using sm90_bwd_fused::AddBy;
using FusedServeBackwardKernelConfig = sm90_bwd_fused::FusedBackwardKernelConfig;

}  // namespace flash::sm90_bwd_fused_serve
