"""The Hopper family's launch arguments: Python's for the emulator are C++'s for the driver, and the
header's."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.toolchain import find_nvcc
from flash_helpers.kernel_configs import HopperForwardKernelConfig, get_hopper_smoke_kernel_configs
from flash_helpers.kernels.forward_args import pack_forward_args
from flash_helpers.kernels.sm90_fwd import arguments as hopper_forward_args
from flash_helpers.kernels.sm90_fwd.arguments import (
    LAUNCH_ARGUMENTS_SIZE,
    pack_launch_arguments,
)

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# Prints what the driver would be asked to encode, and the fields behind the maps.
PROGRAM = r"""
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstdio>
#include <cstring>
#include <fstream>
#include "sm90/launch.h"

static CUresult encode(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* address,
                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                       const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  std::printf("%llu", (unsigned long long)(std::uintptr_t)address);
  for (unsigned i = 0; i + 1 < rank; ++i) std::printf(" %llu", (unsigned long long)strides[i]);
  for (unsigned i = 0; i < rank; ++i) std::printf(" %llu", (unsigned long long)sizes[i]);
  for (unsigned i = 0; i < rank; ++i) std::printf(" %u", box[i]);
  std::printf(" %u 2 %d\n", rank, swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : 64);
  return CUDA_SUCCESS;
}

extern "C" {
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

template <auto kConfig>
void show(const char* record) {
  flash::ForwardArgs args;
  std::memcpy(&args, record, sizeof(args));
  const auto made = flash::sm90::kernel_args(kConfig, args, reinterpret_cast<int32_t*>(0x77770));
  std::printf("%p %p %d %d %d %d %d %d %.9g %d\n", (void*)made.lse, (void*)made.tile_counter,
              made.batch, made.seqlen_q, made.seqlen_k, made.n_heads_q, made.n_heads_kv,
              made.causal, made.softmax_scale, made.heads_per_section);
}

int main(int, char** argv) {
  char record[sizeof(flash::ForwardArgs)];
  std::ifstream file(argv[1], std::ios::binary);
  while (file.read(record, sizeof(record))) { SHOW }
}
"""

GOOD: dict[str, Any] = {
    "q": 1 << 40, "k": 2 << 40, "v": 3 << 40, "o": 4 << 40, "lse": 0x5550,
    "q_strides": (80000, 1024, 256), "k_strides": (90000, 512, 264), "v_strides": (0, 520, 272),
    "o_strides": (80008, 1032, 280), "batch": 3, "seqlen_q": 203, "seqlen_k": 8191,
    "n_heads_q": 8, "n_heads_kv": 2, "softmax_scale": 0.1, "causal": True,
}  # fmt: skip
PROBLEMS: list[dict[str, Any]] = [
    GOOD,
    {**GOOD, "causal": False, "lse": 0},
    {**GOOD, "seqlen_k": 0, "k": 0, "v": 0},
    {**GOOD, "batch": 1, "seqlen_q": 1, "n_heads_q": 1, "n_heads_kv": 1, "q_strides": (0, 0, 0)},
    {**GOOD, "seqlen_k": 1, "k_strides": (90000, 0, 264)},
    {**GOOD, "seqlen_k": 1 << 20, "n_heads_kv": 8},
]


def readable(config: HopperForwardKernelConfig, problem: dict[str, Any]) -> list[str]:
    """What the emulator's bytes say, in the words of PROGRAM."""
    data = pack_launch_arguments(config, pack_forward_args(**problem), tile_counter=0x77770)
    lines = []
    for i in range(4):
        fields = struct.unpack("<8sQ4Q5I5H3B47x", data[128 * i : 128 * i + 128])
        lines.append(" ".join(map(str, fields[1:])))
    lse, counter, *numbers = struct.unpack("<QQ6ifi16x", data[512:])
    numbers[6] = f"{numbers[6]:.9g}"
    shown = [hex(lse) if lse else "(nil)", hex(counter), *map(str, numbers)]
    return [*lines, " ".join(shown)]


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    try:
        include = find_nvcc().include_dir
    except BuildError as error:
        pytest.skip(f"no CUDA headers: {error}")
    configs = get_hopper_smoke_kernel_configs()
    shows = " ".join(f"show<{config.to_cpp_struct()}>(record);" for config in configs)
    (tmp_path / "main.cpp").write_text(PROGRAM.replace("SHOW", shows))
    (tmp_path / "records").write_bytes(b"".join(pack_forward_args(**p) for p in PROBLEMS))
    names = ("sm90/tensor_map", "sm90/launch", "error")
    sources = [CSRC / "runtime" / f"{name}.cpp" for name in names]
    flags = [f"-I{CSRC / 'include'}", f"-I{CSRC / 'runtime'}", "-isystem", str(include)]
    command = ["g++", "-std=c++20", *flags, "main.cpp", *map(str, sources), "-o", "main"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(
        [tmp_path / "main", tmp_path / "records"], capture_output=True, text=True, check=True
    )
    expected = [line for p in PROBLEMS for config in configs for line in readable(config, p)]
    # The cache leaves out maps that were encoded before: what is printed is a part, in order.
    encoded = iter(expected)
    lines = ran.stdout.splitlines()
    assert all(line in encoded for line in lines)
    assert len([line for line in lines if "0x77770" in line]) == len(PROBLEMS) * len(configs)
    assert {line for line in expected if "0x77770" not in line} <= set(lines)


def test_offsets_are_the_compiler_s(tmp_path: Path) -> None:
    names = hopper_forward_args.FIELDS
    lines = "".join(
        f'std::printf("%zu ", offsetof(flash::sm90::ForwardKernelArgs, {name}));' for name in names
    )
    (tmp_path / "main.cpp").write_text(
        '#include <cstddef>\n#include <cstdio>\n#include "flash/sm90/args.h"\n'
        f'int main() {{ {lines} std::printf("%zu", sizeof(flash::sm90::ForwardKernelArgs)); }}\n'
    )
    command = ["g++", "-std=c++20", f"-I{CSRC / 'include'}", "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    found = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    *offsets, size = map(int, found.split())
    sizes = [128] * 4 + [8] * 2 + [4] * 8
    assert offsets == [sum(sizes[:i]) for i in range(len(names))]
    assert size == LAUNCH_ARGUMENTS_SIZE == 576


def test_what_the_driver_refuses_is_refused() -> None:
    config = get_hopper_smoke_kernel_configs()[0]
    with pytest.raises(ValueError, match="stride 1099511627776 of dimension 1"):
        pack_launch_arguments(config, pack_forward_args(**{**GOOD, "k_strides": (8, 1 << 39, 8)}))
