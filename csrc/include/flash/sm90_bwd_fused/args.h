// Launch arguments of the fused backward kernels: the two-pass ones', with the maps of its kernel
// of dK and dV.
#pragma once

#include "flash/sm90_bwd/args.h"

namespace flash::sm90_bwd_fused {

using sm90::TensorMap;
using sm90_bwd::BackwardKernelArgs;

}  // namespace flash::sm90_bwd_fused
