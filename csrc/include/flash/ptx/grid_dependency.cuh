// Kernels of a stream that overlap (PTX ISA 9.7.13.13, griddepcontrol; sm_90).
//
// A kernel that is queued early (queue_blocks_early(), runtime/family.h) begins as soon as all
// thread blocks of the one before it have ended, or have let it begin.
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// griddepcontrol.launch_dependents
FLASH_DEVICE void let_next_grid_begin() { asm volatile("griddepcontrol.launch_dependents;\n"); }

// griddepcontrol.wait: until the kernels before have ended, and what they wrote is there. Nothing
// to a kernel that was not queued early.
FLASH_DEVICE void await_grids_before() { asm volatile("griddepcontrol.wait;\n" ::: "memory"); }

}  // namespace flash::ptx
