// The one macro of the kernel code, and integer types without <cstdint>'s host baggage.
#pragma once

#include <cstdint>

// Kernel helpers are always inlined: a call would force register arrays into local memory.
#define FLASH_DEVICE __device__ __forceinline__
