// Launch arguments of the backward kernels of pairs: the two-pass ones', with the maps of its
// kernel of dK and dV, and sections.
#pragma once

#include "flash/sm90_bwd/args.h"
#include "flash/sm90_bwd_cluster/sections.h"

namespace flash::sm90_bwd_cluster {

struct BackwardKernelArgs : sm90_bwd::BackwardKernelArgs {
  HeadSections sections;
};

static_assert(sizeof(BackwardKernelArgs) == sizeof(sm90_bwd::BackwardKernelArgs) + 64,
              "Python packs these bytes");

}  // namespace flash::sm90_bwd_cluster
