"""Refusals are sentences that name the cause; FLOP counts are the documented formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.kernel_configs import (
    FlashForwardKernelConfig,
    calc_matmul_flop,
    calc_self_attn_flop,
    calc_total_flop,
    get_kernel_progression_configs,
    get_sm80_kernel_configs,
    parse_sm80_name,
    violations,
)
from flash_helpers.kernels.architecture import SHARED_MEMORY_PER_BLOCK, parse_arch
from tests.config.registers import register_advice, register_estimate

GOOD = parse_sm80_name("(BF16, 64, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer")


def changed(**fields: object) -> FlashForwardKernelConfig:
    return replace(GOOD, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (changed(d_head=96), "d_head = 96 is not supported: it must be 64 or 128."),
        (changed(B_r=192), "B_r = 192 is not supported"),
        (changed(B_c=16), "B_c = 16 is not supported: it must be 32 or 64 or 128."),
        (changed(n_warps=2), "n_warps = 2 is not supported: it must be 4 or 8."),
        (changed(B_r=64, n_warps=8), "n_warps = 8 needs B_r = 128, but B_r is 64."),
        (changed(B_r=64, n_warps=8), "B_r = 64 is not divisible by 128"),
        (changed(B_c=40), "B_c = 40 is not divisible by 16"),
        (changed(d_head=72), "d_head = 72 is not divisible by 16"),
        (changed(Q_mma_load_K_tiles=3), "Q_mma_load_K_tiles = 3 does not divide the 4 k-tiles"),
        (changed(K_mma_load_K_tiles=8), "K_mma_load_K_tiles = 8 does not divide the 4 k-tiles"),
        (
            changed(B_c=32, V_mma_load_K_tiles=4),
            "V_mma_load_K_tiles = 4 does not divide the 2 k-tiles of B_c = 32.",
        ),
        (changed(n_warps=1, d_head=128), "The accumulator of O alone needs 512 registers"),
        (changed(n_warps=1, B_c=128), "The accumulator of S alone needs 512 registers"),
    ],
)
def test_each_cause_has_its_sentence(config: FlashForwardKernelConfig, sentence: str) -> None:
    found = violations(config)
    assert any(line.startswith(sentence) for line in found), found
    assert all(line.endswith(".") for line in found)


@pytest.mark.parametrize(
    "config",
    [
        GOOD,
        changed(Q_mma_load_K_tiles=1, K_mma_load_K_tiles=1, V_mma_load_K_tiles=1),
        changed(Q_mma_load_K_tiles=4, K_mma_load_K_tiles=4, V_mma_load_K_tiles=4),
        changed(async_copy=False),  # eager without async: not worth tuning, but it can be built
        changed(n_warps=8),
    ],
)
def test_what_can_be_built(config: FlashForwardKernelConfig) -> None:
    assert violations(config, "8.0") == []


def test_several_causes_are_all_named() -> None:
    assert len(violations(changed(d_head=72, B_c=40, n_warps=3))) >= 5


def test_architectures() -> None:
    assert violations(GOOD, "7.5") == [
        "Architecture 7.5 is not supported: cp.async, ldmatrix and bf16 mma need 8.0 or later."
    ]
    big = changed(d_head=128, B_r=256, B_c=128)  # 128 KiB: fits sm_80 and sm_90, not sm_86
    for arch, fits in (("8.0", True), ("8.6", False), ("8.9", False), ("9.0", True)):
        complaints = [line for line in violations(big, arch) if "shared memory" in line]
        assert (complaints == []) is fits
    assert "need 131072 bytes" in violations(big, "8.6")[-1]
    assert f"at most {99 * 1024}." in violations(big, (8, 6))[-1]
    assert "shared memory" in violations(big, "13.7")[-1]  # unknown: the smallest limit
    assert SHARED_MEMORY_PER_BLOCK[8, 0] == 163 * 1024
    assert SHARED_MEMORY_PER_BLOCK[9, 0] == 227 * 1024


@pytest.mark.parametrize(
    ("text", "arch"),
    [("8.0", (8, 0)), ("80", (8, 0)), ("sm_86", (8, 6)), ("compute_90", (9, 0)), ("9.0a", (9, 0)),
     ("sm_90a", (9, 0)), ("10.0", (10, 0)), ("sm_120", (12, 0)), ("8.9+PTX", (8, 9))],
)  # fmt: skip
def test_parse_arch(text: str, arch: tuple[int, int]) -> None:
    assert parse_arch(text) == arch


@pytest.mark.parametrize("text", ["", "8", "ampere", "8.0;rm", "8.0\n", "sm_8.0", "٨.٠"])
def test_parse_arch_rejects(text: str) -> None:
    with pytest.raises(ValueError, match="expected a form such as"):
        parse_arch(text)


def test_registers_are_counted_from_the_tiles() -> None:
    # 32 rows a warp, d 64, B_c 64, two k-tiles of each operand at a time.
    estimate = register_estimate(GOOD)
    assert (estimate.o_accumulator, estimate.s_accumulator) == (64, 64)
    assert (estimate.q_fragments, estimate.k_fragments, estimate.v_fragments) == (16, 32, 32)
    whole = register_estimate(changed(Q_mma_load_K_tiles=0, K_mma_load_K_tiles=0))
    assert (whole.q_fragments, whole.k_fragments) == (32, 64)
    assert estimate.total < whole.total


def test_register_advice_names_the_steps_that_must_spill() -> None:
    for config in get_kernel_progression_configs(all=True):
        if (config.B_r, config.B_c, config.n_warps) == (128, 128, 4):
            assert "expect spills" in (register_advice(config) or "")
    assert register_advice(GOOD) is None
    assert any(register_advice(c) is None for c in get_sm80_kernel_configs("all"))


def test_attention_flop() -> None:
    assert calc_self_attn_flop(2, 3, 10, 4) == 2 * 3 * (4 * 100 * 4 + 6 * 100)
    assert GOOD.attn_flop(2, 3, 256) == calc_self_attn_flop(2, 3, 256, 64)
    assert calc_matmul_flop(2, 3, 10, 20, 4) == 4 * 2 * 3 * 10 * 20 * 4
    assert calc_matmul_flop(2, 3, 10, 10, 4, causal=True) == 2 * 2 * 3 * 10 * 10 * 4


def test_total_flop_adds_softmax_and_epilogue() -> None:
    tile = 4 * 128 * 64 * 64 + 128 * (4 * 64 + 64 + 4)
    assert GOOD.total_flop(2, 3, 256) == 2 * 3 * 2 * (4 * tile + 128 * 64)
    assert calc_total_flop(2, 3, 256, B_r=128, B_c=64, d_head=64) == GOOD.total_flop(2, 3, 256)


@pytest.mark.parametrize(("seq_len", "block"), [(192, "B_r"), (100, "B_r")])
def test_total_flop_needs_divisible_lengths(seq_len: int, block: str) -> None:
    with pytest.raises(ValueError, match=f"not divisible by {block}"):
        GOOD.total_flop(1, 1, seq_len)
    with pytest.raises(ValueError, match="not divisible by B_c"):
        calc_total_flop(1, 1, 128, 128, 96, 64)
