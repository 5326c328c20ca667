// The last check of the arguments of a backward pass before they reach a kernel, as
// forward_checks.h.
#pragma once

#include "flash/core/backward_args.h"
#include "flash/core/registry.h"

namespace flash {

// What no family takes is refused: the message names the argument, its value and what is accepted.
void check_backward_args(const KernelEntry& entry, const BackwardArgs& args);

// Thread blocks with `rows` rows each: of queries, or of keys for the kernel of their gradients;
// for each head and batch entry. 0 if nothing of what the kernel computes is wanted. Checked to fit
// a grid. `stats_block`: what the rows with RowStats are filled up to.
unsigned backward_blocks(const KernelEntry& entry, const BackwardArgs& args, int rows,
                         int stats_block = kRowStatsBlock);

}  // namespace flash
