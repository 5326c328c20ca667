// Launch arguments of the backward kernels of pairs: the two-pass ones', with the maps of its
// kernel of dK and dV.
#pragma once

#include "flash/sm90_bwd/args.h"

namespace flash::sm90_bwd_cluster {

using sm90_bwd::BackwardKernelArgs;

}  // namespace flash::sm90_bwd_cluster
