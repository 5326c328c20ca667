// Fences between the two ways to reach memory (PTX ISA 9.7.13.4).
#pragma once

#include "flash/ptx/device.cuh"

namespace flash::ptx {

// fence.proxy.async.shared::cta: this thread's ordinary shared-memory writes become visible to the
// copy engine and to wgmma. By each writer, before the barrier that hands the data over.
FLASH_DEVICE void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// fence.proxy.async.global: the same of global memory.
FLASH_DEVICE void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;\n" ::: "memory");
}

}  // namespace flash::ptx
