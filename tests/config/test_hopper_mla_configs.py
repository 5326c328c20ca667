"""The configurations of the Hopper family's serving kernels for MLA: names, violations, and which
calls they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.kernel_configs import (
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    parse_symbol,
    violations,
)
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference
from flash_helpers.kernels.serve_config import ServeSizes
from flash_helpers.kernels.sm80_serve_mla.config import AmpereMlaKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig
from flash_helpers.kernels.sm90_target import SHARED_MEMORY_BYTES

CONFIGS = [c for c in get_kernel_configs("hopper-mla") if isinstance(c, HopperMlaKernelConfig)]
CONFIG = CONFIGS[0]
DECODE = ServeSizes(
    batch=3, n_rows=3, seqlen_q=1, n_heads_q=128, n_heads_kv=1, d_head=576, d_v=512, page_size=64
)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_names_read_back(config: HopperMlaKernelConfig) -> None:
    for text in (config.kernel_name(), config.short_form(), f"| {config.short_form()} | 1 |"):
        assert parse_kernel_name_into_config(text) == config
    for variant in (Variant.APPEND, Variant.SERVE, Variant.COMBINE):
        assert parse_symbol(config.symbol(variant)) == (config, variant)
    fields = config.dtype, config.d_head, config.B_r, config.B_c, config.n_warps, config.n_stages
    assert config != AmpereMlaKernelConfig(*fields)
    assert config.smem_bytes() <= SHARED_MEMORY_BYTES


@pytest.mark.parametrize(("arch", "built"), [(None, True), ("9.0", True), ("8.0", False),
                                             ("10.0", False)])  # fmt: skip
def test_only_for_its_own_gpus(arch: str | None, built: bool) -> None:
    assert (not violations(CONFIG, arch)) == built


@pytest.mark.parametrize("changed", [{"d_head": 512}, {"B_r": 128}, {"n_warps": 4},
                                     {"n_stages": 3}, {"B_c": 32}])  # fmt: skip
def test_what_cannot_be_built_says_why(changed: dict[str, Any]) -> None:
    ((name, value),) = changed.items()
    assert f"{name} = {value}" in " ".join(violations(replace(CONFIG, **changed), "9.0"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({}, None), ({"n_heads_q": 64}, None), ({"n_heads_q": 63}, "64 rows"),
     ({"n_heads_q": 16}, "64 rows"), ({"n_heads_q": 16, "n_rows": 10}, None),
     ({"n_heads_q": 16, "n_rows": 12, "is_fixed": True}, "64 rows"),
     ({"n_heads_q": 64, "is_fixed": True}, None), ({"n_heads_q": 64, "n_heads_kv": 2}, "64 rows"),
     ({"n_new": 1, "rotates": True}, None), ({"page_size": 0}, None), ({"page_size": 8}, None),
     ({"page_size": 720}, None), ({"page_size": 12}, "multiple of 8 keys"),
     ({"page_size": 1}, "multiple of 8 keys")],
)  # fmt: skip
def test_calls_that_it_takes(changed: dict[str, Any], reason: str | None) -> None:
    found = CONFIG.refusal(replace(DECODE, **changed))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(("capability", "first"), [((9, 0), "sm90_serve_mla"),
                                                   ((8, 0), "sm80_serve_mla"),
                                                   ((10, 0), "sm80_serve_mla"),
                                                   (None, "sm80_serve_mla")])  # fmt: skip
def test_it_is_asked_first_on_its_own_gpus(capability: tuple[int, int] | None, first: str) -> None:
    problem = AttentionProblem(CONFIG.dtype, 1, 1, 64, 128, 1, 576, d_v=512)
    asked = [
        family.NAME for family in by_preference(capability, serves=True)
        if family.refusal(problem, capability) is None
    ]  # fmt: skip
    assert asked[0] == first


def test_parts_of_a_block_divide_it_and_its_pages() -> None:
    for page_size in range(8, 1024, 8):
        rows = CONFIG.part_rows(page_size)
        assert rows % 8 == page_size % rows == CONFIG.B_c % rows == 0
