// The last check of the arguments of a serving call before they reach a kernel, as
// forward_checks.h.
#pragma once

#include "flash/core/registry.h"
#include "flash/core/serve_args.h"

namespace flash {

// What no family takes is refused: the message names the argument, its value and what is accepted.
// What lies on the device is not looked at.
void check_serve_args(const KernelEntry& entry, const ServeArgs& args);

// Thread blocks of a kernel whose tiles have `tile_rows` rows, and `combining_blocks` for the
// splits of each to be merged; 0: it has nothing to do. Checked to fit a grid.
unsigned serve_blocks(const KernelEntry& entry, const ServeArgs& args, int tile_rows,
                      int combining_blocks);

}  // namespace flash
