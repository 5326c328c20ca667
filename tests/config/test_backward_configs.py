"""Configurations of backward passes: names, constraints, sizes of their kernels and of what they
are launched with."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.kernel_configs import (
    DType,
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    violations,
)
from flash_helpers.kernels.backward_args import (
    FIELDS,
    pack_backward_args,
    row_stats_rows,
    unpack_backward_args,
)
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.registry import FAMILIES, by_preference
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from tests.config.spellings import check_spellings

D_HEADS = (64, 96, 128, 192, 256)
CONFIG = AmpereBackwardKernelConfig(DType.FP16, 128, 128, 64, 8, 64, 32, 4)
SHORT = "(FP16, 128, 128, 64, 8, 64, 32, 4): ampere_backward"
SYMBOL = "flash_bwd_sm80_fp16_d128_k128x64w8_q64x32w4"


def test_spellings() -> None:
    suffixes = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.QUERIES: "_queries"}
    check_spellings(CONFIG, SHORT, SYMBOL, suffixes)
    for wrong in (SHORT + "s", SYMBOL + "_any", SHORT.replace("64, 32, 4", "64, 32")):
        with pytest.raises(ValueError, match="does not name a kernel configuration"):
            parse_kernel_name_into_config(wrong)
    with pytest.raises(ValueError, match="has no kernel any"):
        CONFIG.symbol(Variant.ANY)


def test_the_set_is_part_of_all_and_can_be_built() -> None:
    found = [c for c in get_kernel_configs("ampere-bwd") if c.FAMILY == CONFIG.FAMILY]
    assert set(found) <= set(get_kernel_configs("all")) and found == sorted(found)
    assert all(config.GRADIENTS and violations(config) == [] for config in found)
    assert {(c.dtype, c.d_head) for c in found} == {(t, d) for t in DType for d in D_HEADS}


@pytest.mark.parametrize("arch", ["8.0", "8.6", "8.9", "9.0", "12.0"])
def test_every_head_dimension_has_kernels_on(arch: str) -> None:
    built = [c for c in get_kernel_configs("ampere-bwd") if not violations(c, arch)]
    assert {(c.dtype, c.d_head) for c in built} == {(t, d) for t in DType for d in D_HEADS}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 80}, "d_head = 80 is not supported: it must be 64 or 96 or 128 or 192 or"),
        ({"keys_rows": 96}, "keys_rows = 96 is not supported"),
        ({"queries_columns": 8}, "queries_columns = 8 is not supported"),
        ({"keys_rows": 64}, "keys_rows = 64 is not divisible by 128: each of the 8 warps"),
        ({"keys_columns": 128, "keys_warps": 4}, "the kernel keys need 512 registers"),
        ({"queries_rows": 128, "queries_columns": 128}, "the kernel queries need 384 registers"),
    ],
)
def test_violations(changes: dict[str, Any], words: str) -> None:
    (reason,) = violations(replace(CONFIG, **changes))
    assert words in reason


def test_violations_of_an_architecture() -> None:
    (reason,) = violations(CONFIG, "7.5")
    assert "cp.async, ldmatrix and bf16 mma need 8.0 or later" in reason
    (reason,) = violations(CONFIG, "8.6")
    assert "need 132096 bytes of shared memory, but a thread block on architecture 8.6" in reason


def test_thread_blocks() -> None:
    sizes = Sizes(batch=2, seqlen_q=130, seqlen_k=129, n_heads_q=6, n_heads_kv=3)
    assert [CONFIG.grid(variant, sizes) for variant in CONFIG.variants()] == [
        256 // 16 * 6 * 2, 2 * 3 * 2, 3 * 6 * 2,
    ]  # fmt: skip
    assert CONFIG.grid(Variant.KEYS, replace(sizes, seqlen_k=0)) == 0
    assert [row_stats_rows(n) for n in (1, 128, 129)] == [128, 128, 256]


def test_packed_arguments_read_back_by_name() -> None:
    data = pack_backward_args(
        {"q": 1, "k": 2, "d_v": 3}, {"q": (4, 5, 6), "d_v": (2**40, -8, 7)}, batch=8, seqlen_q=9,
        seqlen_k=10, n_heads_q=12, n_heads_kv=11, softmax_scale=0.5, causal=True,
        served={"seqused_k": 13, "window_left": 14, "softcap": 1.5},
    )  # fmt: skip
    fields = unpack_backward_args(data)
    given = {"q": 1, "k": 2, "d_v": 3, "q_stride_batch": 4, "q_stride_seq": 5, "q_stride_head": 6,
             "d_v_stride_batch": 2**40, "d_v_stride_seq": -8, "d_v_stride_head": 7, "batch": 8,
             "seqlen_q": 9, "seqlen_k": 10, "n_heads_q": 12, "n_heads_kv": 11,
             "softmax_scale": 0.5, "causal": 1, "seqused_k": 13, "window_left": 14,
             "softcap": 1.5}  # fmt: skip
    assert fields == {name: given.get(name, 0) for name in FIELDS}
    with pytest.raises(ValueError, match="have 368 bytes, got 367"):
        unpack_backward_args(data[:-1])


def test_families_are_asked_for_what_they_compute() -> None:
    for capability in (None, (8, 0), (9, 0)):
        asked = [by_preference(capability, gradients=gradients) for gradients in (False, True)]
        serving = by_preference(capability, serves=True)
        assert serving and all(family.SERVES for family in serving)
        serving += by_preference(capability, gradients=True, serves=True)
        assert [f.GRADIENTS for families in asked for f in families] == [
            *[False] * 2,
            *[True] * 5,
        ]
        assert {f for families in (*asked, serving) for f in families} == set(FAMILIES)


def test_flop_are_two_and_a_half_times_the_forward_pass() -> None:
    forward = get_kernel_configs("tune")[0]
    assert CONFIG.attn_flop(1, 2, 64) == 2.5 * forward.attn_flop(1, 2, 64)
    scores = 128 * 128
    assert CONFIG.total_flop(1, 1, 128) == scores * (2 * 7 * 128 + 14)
    assert dataclasses.fields(CONFIG)[0].name == "dtype"
