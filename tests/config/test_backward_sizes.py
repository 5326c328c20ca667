"""Threads, shared memory and thread blocks of the kernels of backward passes: Python's are those of
the C++ headers."""

from __future__ import annotations

import itertools

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.sets import get_kernel_configs
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig, SumsOrder
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from tests.cpp_programs import lines_of

# (folder of the header, set of configurations, one that no set has)
FAMILIES = [
    ("sm80_bwd", "ampere-bwd", AmpereBackwardKernelConfig(DType.FP16, 128, 128, 64, 8, 64, 32, 4)),
    ("sm80_bwd_fused", "ampere-bwd", AmpereFusedBackwardKernelConfig(DType.BF16, 64, 64, 64, 4)),
    ("sm90_bwd", "hopper-bwd", HopperBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 192, 64, 3)),
    ("sm90_bwd_cluster", "hopper-bwd",
     ClusterBackwardKernelConfig(DType.BF16, 192, 64, 64, 3, 2, 0, SumsOrder.IN_ORDER)),
    ("sm90_bwd_fused", "hopper-bwd",
     FusedBackwardKernelConfig(DType.BF16, 128, 128, 64, 3, 2, AddBy.REGISTERS)),
]  # fmt: skip
SIZES = ("n_threads", "smem_bytes", "min_blocks_per_sm")


@pytest.mark.parametrize(("folder", "word", "other"), FAMILIES, ids=[f[0] for f in FAMILIES])
def test_sizes_of_every_kernel_are_the_header_s(
    folder: str, word: str, other: BackwardKernelConfig
) -> None:
    found = [config for config in get_kernel_configs(word) if isinstance(config, type(other))]
    assert found
    configs = [other, *found]
    table = ",\n".join(config.to_cpp_struct() for config in configs)
    variants = [f"k{variant.value.capitalize()}" for variant in other.variants()]
    shown = [f"c.{size}(flash::Variant::{variant})" for variant in variants for size in SIZES]
    lines = lines_of(
        f'#include <cstdio>\n#include "flash/{folder}/config.h"\n'
        f"constexpr flash::{folder}::{type(other).__name__} kConfigs[] = {{\n{table}}};\n"
        "int main() { for (const auto& c : kConfigs) "
        f'std::printf("{"%d " * len(shown)}\\n", {", ".join(shown)}); }}\n',
    )
    expected = [
        [n for v in other.variants()
         for n in (c.threads_of(v), c.smem_of(v), c.min_blocks_per_sm(v))]
        for c in configs
    ]  # fmt: skip
    assert [list(map(int, line.split())) for line in lines] == expected


def test_heads_are_shared_out_as_the_header_says() -> None:
    """By the launcher, and where memory is made for it."""
    problems = list(
        itertools.product((1, 3), (1, 128, 129, 2048, 20_000), (1, 6, 12, 128), (1, 2, 8), (0, 1))
    )
    rows = ",".join(f"{{{', '.join(map(str, problem))}}}" for problem in problems)
    lines = lines_of(
        '#include <cstdio>\n#include "flash/sm90_bwd_fused/head_splits.h"\n'
        f"constexpr int kProblems[][5] = {{{rows}}};\n"
        "int main() { for (const auto& p : kProblems) { flash::BackwardArgs args{};\n"
        "  args.batch = p[0]; args.seqlen_k = p[1]; args.n_heads_q = p[2] * p[3];\n"
        "  args.n_heads_kv = p[3]; args.causal = p[4];\n"
        '  std::printf("%d\\n", flash::sm90_bwd_fused::head_splits(args, 128)); } }\n'
    )
    config = FusedBackwardKernelConfig(DType.BF16, 128, 128, 64, 2, 2, AddBy.COPIES)
    expected = [
        config.head_splits(Sizes(batch, 100, keys, group * heads, heads, causal=bool(causal)))
        for batch, keys, group, heads, causal in problems
    ]
    assert list(map(int, lines)) == expected and len(set(expected)) > 5
