"""The launch arguments of the Hopper family's serving kernels for MLA: Python's for the emulator
are C++'s for the driver, and the header's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernels.serve_args import SERVE_ARGS_SIZE, pack_serve_args
from flash_helpers.kernels.sm90_serve_mla.arguments import (
    LAUNCH_ARGUMENTS_SIZE,
    pack_launch_arguments,
)
from flash_helpers.kernels.sm90_serve_mla.sets import get_hopper_mla_kernel_configs
from tests.runtime.maps_as_text import MAP_BYTES, lines_of, text_of

NAMES = ("k", "v", "call", "page_keys", "part_rows", "abreast")
CONFIGS = get_hopper_mla_kernel_configs()

MAIN = r"""
#include "sm90_serve_mla/launch.h"

using Record = flash::sm90_serve_mla::ServeKernelArgs;

template <auto kConfig>
void show(const flash::ServeArgs& args) {
  const Record made = flash::sm90_serve_mla::kernel_args(kConfig, args);
  for (const auto* map : {&made.k, &made.v}) std::printf("%s\n", (const char*)map);
  std::printf("%d %d %d %d\n", std::memcmp(&made.call, &args, sizeof(args)), made.page_keys,
              made.part_rows, made.abreast);
}

int main(int, char** argv) {
  flash::ServeArgs record;
  std::ifstream file(argv[1], std::ios::binary);
  while (file.read(reinterpret_cast<char*>(&record), sizeof(record))) { SHOW }
  std::printf("%zu", sizeof(Record));
  OFFSETS
}
"""

CACHE: dict[str, Any] = {
    **{name: (i + 1) << 40 for i, name in enumerate(("q", "k", "v", "o", "qv"))},
    **{f"{x}_stride_{axis}": 8 * (576 + 40 * i + j)
       for i, x in enumerate("kv") for j, axis in enumerate(("page", "seq", "head"))},
    "batch": 5, "n_rows": 10, "seqlen_q": 2, "seqlen_k": 8191, "n_heads_q": 128, "n_heads_kv": 2,
    "n_splits": 132, "softmax_scale": 0.1, "d_head": 64, "d_v": 512,
}  # fmt: skip
TABLE: dict[str, Any] = {**CACHE, "block_table": 9 << 32, "table_stride": 77}
# 67 sequences with two tiles each: one more than 132 thread blocks can have one of.
SHARED: dict[str, Any] = {
    **CACHE, "arrivals": 7 << 32, "batch": 67, "n_rows": 67, "seqlen_q": 1, "n_heads_kv": 1
}  # fmt: skip
NOT_ABREAST: list[dict[str, Any]] = [
    {"arrivals": 0}, {"batch": 66}, {"cu_seqlens_q": 3 << 32}, {"seqused_q": 3 << 32},
    {"n_heads_q": 64}, {"seqlen_q": 5, "n_heads_q": 128}, {"n_splits": 1},
]  # fmt: skip
ABREAST: list[tuple[dict[str, Any], int]] = [
    ({}, 2), ({"n_heads_q": 65}, 2), ({"seqlen_q": 4}, 8), ({"n_heads_kv": 2, "n_heads_q": 512}, 4),
    ({"batch": 2, "n_splits": 2}, 2),
]  # fmt: skip
PROBLEMS = [
    CACHE,
    {**CACHE, "batch": 1, "n_rows": 1, "seqlen_k": 1, "n_heads_kv": 1},
    {**CACHE, "cache_batch_idx": 9 << 32},
    {**CACHE, "cu_seqlens_k": 2 << 32, "k_stride_page": 0, "v_stride_page": 0},
    {**CACHE, "seqlen_k": 0, "k": 0, "v": 0},
    *({**TABLE, "page_size": page, "seqlen_k": 70 * page} for page in (8, 24, 64, 1024)),
    {**TABLE, "page_size": 16, "seqlen_k": 0, "k": 0, "v": 0},
    *({**SHARED, **changed} for changed in NOT_ABREAST),
    *({**SHARED, **changed} for changed, _ in ABREAST),
]


def shown(config: Any, record: bytes) -> list[str]:
    """What MAIN prints of Python's bytes."""
    data = pack_launch_arguments(config, record)
    assert len(data) == LAUNCH_ARGUMENTS_SIZE
    maps = [text_of(data[MAP_BYTES * i : MAP_BYTES * (i + 1)]) for i in range(2)]
    call, rest = data[2 * MAP_BYTES :][:SERVE_ARGS_SIZE], data[2 * MAP_BYTES + SERVE_ARGS_SIZE :]
    assert call == record
    return [*maps, " ".join(map(str, (0, *struct.unpack_from("<3i", rest))))]


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    shows = " ".join(f"show<{config.to_cpp_struct()}>(record);" for config in CONFIGS)
    offsets = " ".join(f'std::printf(" %zu", offsetof(Record, {name}));' for name in NAMES)
    main = MAIN.replace("SHOW", shows).replace("OFFSETS", offsets)
    sources = ("sm90/tensor_map", "sm90_serve_mla/launch", "error", "driver_entry")
    records = [pack_serve_args(problem) for problem in PROBLEMS]
    *lines, record = lines_of(tmp_path, main, sources, records)
    assert lines == [line for r in records for config in CONFIGS for line in shown(config, r)]
    behind = 2 * MAP_BYTES + SERVE_ARGS_SIZE
    expected = [LAUNCH_ARGUMENTS_SIZE, 0, MAP_BYTES, 2 * MAP_BYTES, behind, behind + 4, behind + 8]
    assert list(map(int, record.split())) == expected


def test_which_tiles_are_abreast() -> None:
    """Up to eight of a sequence, where thread blocks have several tiles, and sequences as many."""
    for changed, n in [*ABREAST, *((changed, 1) for changed in NOT_ABREAST)]:
        data = pack_launch_arguments(CONFIGS[0], pack_serve_args({**SHARED, **changed}))
        (found,) = struct.unpack_from("<i", data, 2 * MAP_BYTES + SERVE_ARGS_SIZE + 8)
        assert found == n, changed


def test_what_the_driver_refuses_is_refused() -> None:
    record = pack_serve_args({**CACHE, "k_stride_seq": 1 << 39})
    with pytest.raises(ValueError, match="stride 1099511627776 of dimension 1"):
        pack_launch_arguments(CONFIGS[0], record)
