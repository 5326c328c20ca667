// Launch arguments of the Hopper family's fused backward kernels that serve: those of the others,
// whose tensor maps are made so that a copy ends with its sequence (sequences.cuh).
#pragma once

#include "flash/sm90_bwd_fused/args.h"

namespace flash::sm90_bwd_fused_serve {

using sm90_bwd_fused::BackwardKernelArgs;

}  // namespace flash::sm90_bwd_fused_serve
