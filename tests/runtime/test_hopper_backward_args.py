"""The launch arguments of the Hopper family's backward pass: Python's for the emulator are C++'s
for the driver, and the header's."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from flash_helpers.kernels.backward_args import STRIDED, pack_backward_args
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.sm90_bwd.arguments import (
    LAUNCH_ARGUMENTS_SIZE,
    NarrowMap,
    pack_launch_arguments,
)
from tests.config.test_hopper_backward_configs import CONFIG
from tests.runtime.maps_as_text import MAP_BYTES, lines_of, text_of

MAPS = ("own1", "own2", "other1", "other2", "d_own1", "d_own2", "stats", "narrow")
CONFIGS = (CONFIG, replace(CONFIG, d_head=96), replace(CONFIG, d_head=64, keys_columns=128),
           replace(CONFIG, keys_columns=80))  # fmt: skip

# Prints what the driver would be asked to encode into the bytes of a map, and so what lies where.
MAIN = r"""
#include "sm90_bwd/launch.h"

template <auto kConfig>
void show(const flash::BackwardArgs& args) {
  using flash::Variant, flash::sm90_bwd::Narrow;
  for (const Variant variant : {Variant::kDots, Variant::kKeys, Variant::kQueries}) {
    for (const Narrow narrow : {Narrow{Narrow::kQueryGradients, 64},
                                Narrow{Narrow::kKeyChunks, 32}}) {
      const auto made = flash::sm90_bwd::kernel_args(
          kConfig, variant, args, args.cu_seqlens_q == nullptr ? narrow : Narrow{});
      for (const auto* map : {MAPS}) std::printf("%s\n", (const char*)map);
      std::printf("%d\n", std::memcmp(&made.call, &args, sizeof(args)));
    }
  }
}

int main(int, char** argv) {
  flash::BackwardArgs record;
  std::ifstream file(argv[1], std::ios::binary);
  while (file.read(reinterpret_cast<char*>(&record), sizeof(record))) { SHOW }
  std::printf("%zu", sizeof(flash::sm90_bwd::BackwardKernelArgs));
  using Record = flash::sm90_bwd::BackwardKernelArgs;
  OFFSETS
}
"""


def problem(**changes: Any) -> bytes:
    """A record with other strides for every tensor."""
    given: dict[str, Any] = {
        "pointers": {n: (i + 1) << 40 for i, n in enumerate((*STRIDED, "row_stats"))},
        "strides": {n: (80000 + 8 * i, 1024 + 8 * i, 256 + 8 * i) for i, n in enumerate(STRIDED)},
        "batch": 3, "seqlen_q": 203, "seqlen_k": 8191, "n_heads_q": 8, "n_heads_kv": 2,
        "softmax_scale": -0.1, "causal": True, **changes,
    }  # fmt: skip
    return pack_backward_args(**given)


PACKED = {"cu_seqlens_q": 1 << 50, "cu_seqlens_k": 1 << 51}  # of families that serve
PACKED_PROBLEMS = [
    problem(served=PACKED),
    problem(served=PACKED, seqlen_q=1, seqlen_k=0, n_heads_kv=1),
]
PROBLEMS = [
    problem(),
    problem(batch=1, seqlen_q=1, n_heads_q=1, n_heads_kv=1),
    problem(seqlen_k=0, causal=False),
    problem(pointers={n: (i + 1) << 40 for i, n in enumerate(("q", "k", "v", "d_o", "row_stats"))}),
    problem(seqlen_q=1 << 20, seqlen_k=1),
    *PACKED_PROBLEMS,
]  # fmt: skip


def shown(config: Any, record: bytes) -> list[str]:
    """What MAIN prints of Python's bytes."""
    lines: list[str] = []
    narrows = NarrowMap("d_q", 64), NarrowMap("k", 32, config.swizzle_bytes())
    variants = Variant.DOTS, Variant.KEYS, Variant.QUERIES
    for variant, narrow in itertools.product(variants, narrows):
        wanted = None if record in PACKED_PROBLEMS else narrow
        data = pack_launch_arguments(config, record, variant, wanted)
        assert len(data) == LAUNCH_ARGUMENTS_SIZE
        maps = [data[MAP_BYTES * i : MAP_BYTES * (i + 1)] for i in range(len(MAPS))]
        lines += map(text_of, maps)
        assert data[MAP_BYTES * len(MAPS) :].startswith(record)
        lines.append("0")
    return lines


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    shows = " ".join(f"show<{config.to_cpp_struct()}>(record);" for config in CONFIGS)
    offsets = [f'std::printf(" %zu", offsetof(Record, {name}));' for name in (*MAPS, "call")]
    main = MAIN.replace("MAPS", ", ".join(f"&made.{name}" for name in MAPS))
    main = main.replace("SHOW", shows).replace("OFFSETS", "".join(offsets))
    sources = ("sm90/tensor_map", "sm90_bwd/launch", "forward_checks", "error", "driver_entry")
    *lines, record = lines_of(tmp_path, main, sources, PROBLEMS)
    assert lines == [line for p in PROBLEMS for config in CONFIGS for line in shown(config, p)]
    expected = [LAUNCH_ARGUMENTS_SIZE, *(MAP_BYTES * i for i in range(len(MAPS) + 1))]
    assert list(map(int, record.split())) == expected
