"""Threads, shared memory and thread blocks of the kernels of backward passes: Python's are those of
the C++ headers."""

from __future__ import annotations

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sets import get_kernel_configs
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from tests.cpp_programs import lines_of

# (folder of the header, set of configurations, one that no set has)
FAMILIES = [
    ("sm80_bwd", "ampere-bwd", AmpereBackwardKernelConfig(DType.FP16, 128, 128, 64, 8, 64, 32, 4)),
    ("sm90_bwd", "hopper-bwd", HopperBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 192, 64, 3)),
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
