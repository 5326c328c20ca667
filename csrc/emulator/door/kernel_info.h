// What a translated kernel exports: one `kernel_info` per shared library.
// py/flash_helpers/emulator/door/abi.py mirrors the records of this file and of launch.h.
#pragma once

#include "lane.h"
#include "types.h"

namespace emulator {

struct KernelParameter {
  u32 offset;
  u32 bytes;
};

// A module-level .global or .const array, with the name it has in the PTX.
struct KernelGlobal {
  const char* name;
  const void* address;
  u64 bytes;
  u32 writable;
};

struct KernelInfo {
  void (*entry)(Lane*);
  const KernelParameter* parameters;
  const KernelGlobal* globals;
  u32 n_parameters;
  u32 n_globals;
  u32 static_shared_bytes;  // dynamic shared memory follows
  u32 local_bytes;
  u64 stack_bytes;          // an upper bound of the frame
  u32 uses_global_atomics;  // results may depend on the order of blocks
  u32 smallest_access;      // bytes, at most 4, of accesses to shared and global memory
  u32 orders_blocks;        // has fences for other blocks
  u32 uses_sm90;            // mbarriers, bulk copies or warpgroup matmuls
  u32 begins_early;         // has griddepcontrol.wait
  u32 cluster;              // blocks of one, as the kernel declares; 0: it does not
};

}  // namespace emulator
