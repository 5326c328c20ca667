"""Programs that make launch arguments with the C++ of the runtime, where a stub of the driver
writes into each tensor map, as text, what it is asked to encode."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests import cpp_programs

MAP_BYTES = 128

_DRIVER = r"""
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>

static CUresult encode(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                       const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  char* out = reinterpret_cast<char*>(map);
  out += std::sprintf(out, "%llu", (unsigned long long)(std::uintptr_t)address);
  for (unsigned i = 0; i + 1 < rank; ++i) {
    out += std::sprintf(out, " %llu", (unsigned long long)strides[i]);
  }
  for (unsigned i = 0; i < rank; ++i) {
    out += std::sprintf(out, " %llu", (unsigned long long)sizes[i]);
  }
  for (unsigned i = 0; i < rank; ++i) out += std::sprintf(out, " %u", box[i]);
  const int bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                    : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                    : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                           : 0;
  std::sprintf(out, " %u 2 %d", rank, bytes);
  return CUDA_SUCCESS;
}

extern "C" {
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&encode);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}
"""


def lines_of(
    folder: Path, main: str, sources: Iterable[str], records: Sequence[bytes]
) -> list[str]:
    """What `main`, with `sources` of csrc/runtime, prints about the records in the file that it is
    given. Skips the test where there are no CUDA headers."""
    (folder / "records").write_bytes(b"".join(records))
    return cpp_programs.lines_of(
        _DRIVER + main,
        folder / "records",
        sources=cpp_programs.runtime_sources(*sources),
        flags=cpp_programs.runtime_flags(),
    )


def text_of(tensor_map: bytes) -> str:
    """The same of one of the emulator's maps: address, strides, sizes, box, rank, bytes of an
    element, swizzle. Empty for one that is not there."""
    if not any(tensor_map):
        return ""
    return " ".join(map(str, struct.unpack("<8sQ4Q5I5H3B47x", tensor_map)[1:]))
