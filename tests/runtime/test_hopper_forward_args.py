"""The Hopper family's launch arguments: Python's for the emulator are C++'s for the driver, and the
header's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import HopperForwardKernelConfig, get_hopper_smoke_kernel_configs
from flash_helpers.kernels.forward_args import pack_forward_args
from flash_helpers.kernels.sm90_fwd import arguments as hopper_forward_args
from flash_helpers.kernels.sm90_fwd.arguments import (
    LAUNCH_ARGUMENTS_SIZE,
    pack_launch_arguments,
)
from tests import cpp_programs
from tests.runtime.maps_as_text import MAP_BYTES, lines_of, text_of

# Prints the maps, and the fields behind them.
MAIN = r"""
#include "sm90/launch.h"

template <auto kConfig>
void show(const char* record) {
  flash::ForwardArgs args;
  std::memcpy(&args, record, sizeof(args));
  const auto made = flash::sm90::kernel_args(kConfig, args, reinterpret_cast<int32_t*>(0x77770));
  for (const auto* map : {&made.q, &made.k, &made.v, &made.o}) {
    std::printf("%s\n", (const char*)map);
  }
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
    """What MAIN prints of Python's bytes."""
    data = pack_launch_arguments(config, pack_forward_args(**problem), tile_counter=0x77770)
    lines = [text_of(data[MAP_BYTES * i : MAP_BYTES * (i + 1)]) for i in range(4)]
    lse, counter, *numbers = struct.unpack("<QQ6ifi16x", data[512:])
    numbers[6] = f"{numbers[6]:.9g}"
    shown = [hex(lse) if lse else "(nil)", hex(counter), *map(str, numbers)]
    return [*lines, " ".join(shown)]


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    configs = get_hopper_smoke_kernel_configs()
    main = MAIN.replace(
        "SHOW", " ".join(f"show<{config.to_cpp_struct()}>(record);" for config in configs)
    )
    records = [pack_forward_args(**problem) for problem in PROBLEMS]
    lines = lines_of(
        tmp_path, main, ("sm90/tensor_map", "sm90/launch", "error", "driver_entry"), records
    )
    assert lines == [line for p in PROBLEMS for config in configs for line in readable(config, p)]


def test_offsets_are_the_compiler_s() -> None:
    names = hopper_forward_args.FIELDS
    lines = "".join(
        f'std::printf("%zu ", offsetof(flash::sm90::ForwardKernelArgs, {name}));' for name in names
    )
    main = (
        '#include <cstddef>\n#include <cstdio>\n#include "flash/sm90/args.h"\n'
        f'int main() {{ {lines} std::printf("%zu", sizeof(flash::sm90::ForwardKernelArgs)); }}\n'
    )
    (found,) = cpp_programs.lines_of(main)
    *offsets, size = map(int, found.split())
    sizes = [128] * 4 + [8] * 2 + [4] * 8
    assert offsets == [sum(sizes[:i]) for i in range(len(names))]
    assert size == LAUNCH_ARGUMENTS_SIZE == 576


def test_what_the_driver_refuses_is_refused() -> None:
    config = get_hopper_smoke_kernel_configs()[0]
    with pytest.raises(ValueError, match="stride 1099511627776 of dimension 1"):
        pack_launch_arguments(config, pack_forward_args(**{**GOOD, "k_strides": (8, 1 << 39, 8)}))
