"""The launch arguments of the Hopper family's serving kernels: Python's for the emulator are C++'s
for the driver, and the header's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.serve_args import SERVE_ARGS_SIZE, pack_serve_args
from flash_helpers.kernels.sm90_serve.arguments import LAUNCH_ARGUMENTS_SIZE, pack_launch_arguments
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from tests.runtime.maps_as_text import MAP_BYTES, lines_of, text_of

COUNTER = 0x77770
NAMES = ("q", "k", "v", "o", "call", "tile_counter", "tiles_per_head", "heads_per_section",
         "pages", "pages_stride", "page_keys", "part_rows", "group_heads", "group_queries",
         "group_inverse", "cap", "page_inverse", "block_parts")  # fmt: skip
CONFIGS = [c for c in get_kernel_configs("hopper-serve") if isinstance(c, HopperServeKernelConfig)]

MAIN = r"""
#include "sm90_serve/launch.h"

using Record = flash::sm90_serve::ServeKernelArgs;

template <auto kConfig>
void show(const flash::ServeArgs& args) {
  const Record made =
      flash::sm90_serve::kernel_args(kConfig, args, reinterpret_cast<std::int32_t*>(COUNTER));
  for (const auto* map : {&made.q, &made.k, &made.v, &made.o}) {
    std::printf("%s\n", (const char*)map);
  }
  std::printf("%d %zu %d %d %zu %lld %d %d %d %d %d",
              std::memcmp(&made.call, &args, sizeof(args)),
              (std::size_t)made.tile_counter, made.tiles_per_head, made.heads_per_section,
              (std::size_t)made.pages, (long long)made.pages_stride, made.page_keys,
              made.part_rows, made.group_heads, made.group_queries, made.group_inverse);
  std::printf(" %a", made.cap.limit);
  for (const float factor : made.cap.factors) std::printf(" %a", factor);
  std::printf(" %u %d\n", made.page_inverse, made.block_parts);
}

int main(int, char** argv) {
  flash::ServeArgs record;
  std::ifstream file(argv[1], std::ios::binary);
  while (file.read(reinterpret_cast<char*>(&record), sizeof(record))) { SHOW }
  std::printf("%zu", sizeof(Record));
  OFFSETS
}
"""

PACKED: dict[str, Any] = {
    **{name: (i + 1) << 40 for i, name in enumerate(("q", "k", "v", "o"))},
    "cu_seqlens_q": 1 << 32, "cu_seqlens_k": 2 << 32,
    **{f"{x}_stride_{axis}": 8 * (128 + 40 * i + j)
       for i, x in enumerate("qo") for j, axis in enumerate(("batch", "seq", "head"))},
    **{f"{x}_stride_{axis}": 8 * (288 + 40 * i + j)
       for i, x in enumerate("kv") for j, axis in enumerate(("page", "seq", "head"))},
    "q_stride_batch": 0, "o_stride_batch": 0, "k_stride_page": 0, "v_stride_page": 0,
    "batch": 5, "n_rows": 1031, "seqlen_k": 8191, "n_heads_q": 8, "n_heads_kv": 2, "n_splits": 1,
    "softmax_scale": 0.1, "window_left": 2**31 - 1, "d_head": 192, "d_v": 192,
}  # fmt: skip
CACHE: dict[str, Any] = {
    **PACKED, "cu_seqlens_q": 0, "cu_seqlens_k": 0, "q_stride_batch": 80000,
    "o_stride_batch": 80008, "k_stride_page": 90000, "v_stride_page": 90008, "seqlen_q": 206,
    "n_rows": 1030,
}  # fmt: skip
FULL: dict[str, Any] = {**PACKED, "window_right": 2**31 - 1}
PROBLEMS = [
    PACKED,
    CACHE,
    {**CACHE, "cu_seqlens_q": 1 << 32, "q_stride_batch": 0, "o_stride_batch": 0},
    {**PACKED, "batch": 1, "n_rows": 1, "seqlen_k": 1, "n_heads_q": 1, "n_heads_kv": 1},
    {**PACKED, "seqlen_k": 0, "k": 0, "v": 0},
    {**PACKED, "seqlen_k": 1 << 17, "n_heads_q": 64, "n_heads_kv": 8, "n_rows": 1 << 20},
    {**CACHE, "seqlen_k": 1 << 20, "seqlen_q": 1 << 18, "n_rows": 5 << 18},
    *({**CACHE, "block_table": 9 << 32, "table_stride": 77, "page_size": page,
       "seqlen_k": 70 * page} for page in (8, 24, 128, 1024)),
    {**PACKED, "block_table": 9 << 32, "table_stride": 0, "page_size": 16, "seqlen_k": 0, "k": 0,
     "v": 0},
    {**CACHE, "cache_batch_idx": 9 << 32},
    {**PACKED, "d_v": 128},
    *({**PACKED, "batch": 1, "seqlen_k": keys, "n_heads_q": 16, "n_heads_kv": kv_heads}
      for keys in (1 << 12, 1 << 14) for kv_heads in (16, 8)),
    FULL,
    {**FULL, "n_heads_q": 12, "n_heads_kv": 4},
    *({**problem, "n_heads_q": 2 * group} for group in (3, 16, 64) for problem in (PACKED, CACHE)),
    {**PACKED, "n_heads_q": 12, "n_heads_kv": 1},
    # Soft caps: usual ones, one beyond which all scores are, and ever larger ones, of which ever
    # fewer factors are numbers of fp32.
    *({**PACKED, "softcap": cap} for cap in (50.0, 0.3, 1e-6, 1e3, 1e4, 1e6)),
    {**PACKED, "softcap": 1e6, "softmax_scale": 2.0**-100},
    {**PACKED, "softcap": 1e-6, "softmax_scale": 3e38},
]  # fmt: skip


def shown(config: HopperServeKernelConfig, record: bytes) -> list[str]:
    """What MAIN prints of Python's bytes."""
    data = pack_launch_arguments(config, record, tile_counter=COUNTER)
    assert len(data) == LAUNCH_ARGUMENTS_SIZE
    maps = [text_of(data[MAP_BYTES * i : MAP_BYTES * (i + 1)]) for i in range(4)]
    call, rest = data[4 * MAP_BYTES :][:SERVE_ARGS_SIZE], data[4 * MAP_BYTES + SERVE_ARGS_SIZE :]
    assert call == record
    *cap, inverse, parts = struct.unpack_from("<7fIi", rest, struct.calcsize("<Q2iQq2i3i"))
    numbers = (0, *struct.unpack_from("<Q2iQq2i3i", rest), *map(as_c_prints, cap), inverse, parts)
    return [*maps, " ".join(map(str, numbers))]


def as_c_prints(number: float) -> str:
    """By %a."""
    digits, exponent = number.hex().split("p")
    digits = digits.rstrip("0").removesuffix(".") if "." in digits else digits
    return f"{digits}p{exponent}" if number else "0x0p+0"


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    shows = " ".join(f"show<{config.to_cpp_struct()}>(record);" for config in CONFIGS)
    offsets = " ".join(f'std::printf(" %zu", offsetof(Record, {name}));' for name in NAMES)
    main = MAIN.replace("SHOW", shows).replace("OFFSETS", offsets).replace("COUNTER", str(COUNTER))
    sources = ("sm90/tensor_map", "sm90/launch", "sm90_serve/launch", "error", "driver_entry")
    records = [pack_serve_args(problem) for problem in PROBLEMS]
    *lines, record = lines_of(tmp_path, main, sources, records)
    assert lines == [line for r in records for config in CONFIGS for line in shown(config, r)]
    behind = 4 * MAP_BYTES + SERVE_ARGS_SIZE
    behind_maps = (0, 8, 12, 16, 24, 32, 36, 40, 44, 48, 52, 80, 84)
    offsets_of_fields = [*(MAP_BYTES * i for i in range(5)), *(behind + n for n in behind_maps)]
    assert list(map(int, record.split())) == [LAUNCH_ARGUMENTS_SIZE, *offsets_of_fields]


@pytest.mark.parametrize(
    ("problem", "heads"), [(FULL, 4), (PACKED, 8), ({**FULL, "window_left": 9}, 8)]
)
def test_heads_that_are_walked_together(problem: dict[str, Any], heads: int) -> None:
    """Those of one KV head, where all keys are seen; of few keys all, so that long tiles come
    first."""
    config = next(c for c in CONFIGS if c.d_head == 192 and not c.pack_gqa)
    data = pack_launch_arguments(config, pack_serve_args(problem))
    (found,) = struct.unpack_from("<i", data, 4 * MAP_BYTES + SERVE_ARGS_SIZE + 12)
    assert found == heads


def test_what_the_driver_refuses_is_refused() -> None:
    record = pack_serve_args({**PACKED, "k_stride_seq": 1 << 39})
    with pytest.raises(ValueError, match="stride 1099511627776 of dimension 1"):
        pack_launch_arguments(CONFIGS[0], record)


@pytest.mark.parametrize(
    ("keys", "heads", "kv_heads", "section"),
    [(4096, 16, 16, 8), (6144, 16, 16, 8), (16384, 16, 16, 4), (16384, 16, 8, 8),
     (16384, 14, 7, 8), (8192, 13, 13, 7), (1 << 20, 8, 2, 1)],
)  # fmt: skip
def test_sections_are_even(keys: int, heads: int, kv_heads: int, section: int) -> None:
    """Of d 192 12 KV heads of 4096 keys fit L2, 8, 3, 3, 3, 6, and not one."""
    problem = {**PACKED, "batch": 1, "seqlen_k": keys, "n_heads_q": heads, "n_heads_kv": kv_heads}
    config = next(c for c in CONFIGS if c.d_head == 192 and not c.pack_gqa and not c.narrow_v)
    data = pack_launch_arguments(config, pack_serve_args(problem))
    (found,) = struct.unpack_from("<i", data, 4 * MAP_BYTES + SERVE_ARGS_SIZE + 12)
    assert found == section
