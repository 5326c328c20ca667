"""Threads, shared memory and thread blocks of the kernels of backward passes: Python's are those of
the C++ headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.sets import get_kernel_configs
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig

from .test_cpp_contracts import compile_and_run

Config = AmpereBackwardKernelConfig | HopperBackwardKernelConfig
# (folder of the header, set of configurations, one that no set has)
FAMILIES = [
    ("sm80_bwd", "ampere-bwd", AmpereBackwardKernelConfig(DType.FP16, 128, 128, 64, 8, 64, 32, 4)),
    ("sm90_bwd", "hopper-bwd", HopperBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 192, 64, 3)),
]
VARIANTS = ("kDots", "kKeys", "kQueries")
SIZES = ("n_threads", "smem_bytes", "min_blocks_per_sm")


@pytest.mark.parametrize(("folder", "word", "other"), FAMILIES, ids=[f[0] for f in FAMILIES])
def test_sizes_of_every_kernel_are_the_header_s(
    folder: str, word: str, other: Config, tmp_path: Path
) -> None:
    found = get_kernel_configs(word)
    configs = [other, *(config for config in found if isinstance(config, type(other)))]
    assert len(configs) == len(found) + 1
    table = ",\n".join(config.to_cpp_struct() for config in configs)
    shown = [f"c.{size}(flash::Variant::{variant})" for variant in VARIANTS for size in SIZES]
    output = compile_and_run(
        f'#include <cstdio>\n#include "flash/{folder}/config.h"\n'
        f"constexpr flash::{folder}::{type(other).__name__} kConfigs[] = {{\n{table}}};\n"
        "int main() { for (const auto& c : kConfigs) "
        f'std::printf("{"%d " * len(shown)}\\n", {", ".join(shown)}); }}\n',
        tmp_path,
    )
    expected = [
        [n for v in c.variants() for n in (c.threads_of(v), c.smem_of(v), c.min_blocks_per_sm(v))]
        for c in configs
    ]
    assert [list(map(int, line.split())) for line in output.splitlines()] == expected
