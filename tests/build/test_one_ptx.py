"""Families whose PTX nvcc makes once for all targets (`Family.ONE_PTX`): it is the same then."""

from __future__ import annotations

import pytest

from flash_helpers.build.architectures import Selection, parse_arch_list
from flash_helpers.build.kernel_ptx import source_ptx
from flash_helpers.codegen import render_kernel
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.registry import families, family_of
from flash_helpers.kernels.sets import get_kernels_to_build
from flash_helpers.kernels.sm80_serve.config import AmpereServeKernelConfig

NVCC_13 = ("80", "86", "90", "100", "120")
ALL = get_kernels_to_build("all")
ONCE = [config for config in ALL if family_of(config).ONE_PTX]
OF_FAMILIES = {config.FAMILY: config for config in ONCE}
OF_BODIES = {config.header(): config for config in ONCE}
ASKING = [
    config
    for config in ALL
    if isinstance(config, AmpereServeKernelConfig) and config.d_head > 128 and config.B_r > 16
]
# Names of files, and what debuggers read.
BESIDE = (".file", ".loc", ".b8", ".target", "//")


def instructions(config: KernelConfig, architecture: str) -> list[str]:
    variant = config.first_variant()
    text = render_kernel(config, variant)
    ptx = source_ptx(text, config.symbol(variant), architecture)
    lines = [line.strip() for line in ptx.splitlines()]
    return [line for line in lines if not line.startswith(BESIDE)]


def is_the_same(config: KernelConfig) -> bool:
    return instructions(config, "compute_80") == instructions(config, "compute_90a")


@pytest.mark.parametrize("config", OF_FAMILIES.values(), ids=OF_FAMILIES)
def test_a_kernel_of_each_family(config: KernelConfig) -> None:
    assert is_the_same(config)


@pytest.mark.slow
@pytest.mark.parametrize("config", OF_BODIES.values(), ids=OF_BODIES)
def test_a_kernel_of_each_body(config: KernelConfig) -> None:
    assert is_the_same(config)


def test_kernels_that_ask_for_the_target_differ() -> None:
    assert not family_of(ASKING[0]).ONE_PTX
    assert not is_the_same(ASKING[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0;9.0a", ["80,code=sm_80", "80,code=sm_90a"]),
        ("8.6;9.0+PTX", ["86,code=sm_86", "86,code=sm_90", "90,code=compute_90"]),
        ("9.0a", ["90a,code=sm_90a"]),
        ("9.0a;10.0a", ["90a,code=sm_90a", "100a,code=sm_100a"]),
    ],
)
def test_flags(text: str, expected: list[str]) -> None:
    """PTX of the oldest architecture is for all, unless it is for that one alone."""
    selection = Selection(parse_arch_list(text, NVCC_13), "a test")
    flags = [f"-gencode=arch=compute_{flag}" for flag in expected]
    for family in families():
        if family.ONE_PTX:
            assert selection.gencode(family) == flags
    own = selection.gencode(family_of(ASKING[0]))
    assert own == [flag for a in selection.architectures for flag in a.gencode()]
