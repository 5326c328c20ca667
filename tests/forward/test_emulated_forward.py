"""forward() on CPU tensors: nvcc's PTX of each kernel in the emulator against an fp32 reference."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import (
    FlashForwardKernelConfig,
    get_covering_kernel_configs,
    get_sm80_kernel_configs,
)

from ..guarded import guarded, margins_ok
from . import tensors

NAN = float("nan")
# (batch, heads, KV heads, query length, key length)
SHAPES = ((1, 1, 1, 128, 128), (1, 2, 1, 128, 384), (2, 1, 1, 256, 128))

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def name_of(config: FlashForwardKernelConfig) -> str:
    return config.kernel_name()


def draw(
    config: FlashForwardKernelConfig, shape: tuple[int, int, int, int, int], seed: int
) -> Tensors:
    batch, heads, kv_heads, q_len, k_len = shape
    q_shape, k_shape = (batch, q_len, heads, config.d_head), (batch, k_len, kv_heads, config.d_head)
    return tensors.draw(seed, config.dtype.to_torch_dtype(), q_shape, k_shape)


def check(config: FlashForwardKernelConfig, seed: int) -> None:
    for shape in SHAPES:
        q, k, v = draw(config, shape, seed)
        o = guarded(tuple(q.shape), q.dtype)
        lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), NAN)
        flash_attention.forward(config, q, k, v, o, lse=lse)
        reference, reference_lse = attention_reference(q, k, v)
        outcome = compare(o, reference)
        assert outcome.passed, f"{shape}: {outcome.describe()}"
        torch.testing.assert_close(lse, reference_lse, atol=1e-4, rtol=0)
        assert margins_ok(o)
        again = flash_attention.forward(config, q, k, v)
        assert bitwise_equal(again, o)


@pytest.mark.parametrize("config", get_covering_kernel_configs(), ids=name_of)
def test_every_pair_of_switches(config: FlashForwardKernelConfig, seed: int) -> None:
    check(config, seed)


@pytest.mark.parametrize("config", get_sm80_kernel_configs("prog"), ids=name_of)
def test_progression(config: FlashForwardKernelConfig, seed: int) -> None:
    check(config, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    sorted({c for w in ("tune", "progall", "d64") for c in get_sm80_kernel_configs(w)}),
    ids=name_of,
)
def test_all_sets(config: FlashForwardKernelConfig, seed: int) -> None:
    check(config, seed)


def classes(
    configs: list[FlashForwardKernelConfig],
) -> list[list[FlashForwardKernelConfig]]:
    """Configurations that differ only in how data moves: the result depends on the rest alone."""
    groups: dict[tuple[object, ...], list[FlashForwardKernelConfig]] = {}
    for c in configs:
        groups.setdefault((c.dtype, c.d_head, c.B_c, c.optimized_softmax), []).append(c)
    return [group for group in groups.values() if len(group) > 1]


def check_class(group: list[FlashForwardKernelConfig], seed: int) -> None:
    q, k, v = draw(group[0], (1, 1, 1, 256, 256), seed)
    first = flash_attention.forward(group[0], q, k, v)
    for config in group[1:]:
        o = flash_attention.forward(config, q, k, v)
        assert bitwise_equal(o, first), f"{config.short_form()} and {group[0].short_form()}"


def test_how_data_moves_does_not_change_a_bit(seed: int) -> None:
    configs = [*get_sm80_kernel_configs("prog"), *get_covering_kernel_configs()]
    groups = classes(configs)
    assert sum(map(len, groups)) > 15
    for group in groups:
        check_class(group, seed)


@pytest.mark.slow
def test_how_data_moves_does_not_change_a_bit_in_any_set(seed: int) -> None:
    words = ("tune", "progall", "d64", "pairs")
    for group in classes(sorted({c for w in words for c in get_sm80_kernel_configs(w)})):
        check_class(group, seed)


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_large_and_small_logits(dtype: DType, seed: int) -> None:
    """Scores around +-1000 and around 0, and a row whose maximum comes last."""
    config = next(c for c in get_sm80_kernel_configs("tune") if c.dtype == dtype)
    q, k, v = draw(config, (1, 1, 1, 128, 256), seed)
    for factor in (60.0, 1e-3):
        scaled = (q.float() * factor).to(q.dtype)
        reference, _ = attention_reference(scaled, k, v)
        outcome = compare(flash_attention.forward(config, scaled, k, v), reference)
        assert outcome.passed, f"factor {factor}: {outcome.describe()}"
    k[:, 0] = q[:, 0] * 4  # the last block that is read holds the largest score of row 0
    reference, _ = attention_reference(q, k, v)
    outcome = compare(flash_attention.forward(config, q, k, v), reference)
    assert outcome.passed, outcome.describe()


def test_the_scale_is_used(seed: int) -> None:
    config = get_sm80_kernel_configs("prog")[-1]
    q, k, v = draw(config, (1, 1, 1, 64, 64), seed)
    reference, _ = attention_reference(q, k, v, scale=0.3)
    outcome = compare(flash_attention.forward(config, q, k, v, softmax_scale=0.3), reference)
    assert outcome.passed, outcome.describe()


def test_forward_timed_returns_output_and_milliseconds(seed: int) -> None:
    config = get_sm80_kernel_configs("prog")[0]
    q, k, v = draw(config, (1, 1, 1, 64, 64), seed)
    o, ms = flash_attention.forward_timed(config, q, k, v)
    assert bitwise_equal(o, flash_attention.forward(config, q, k, v))
    assert 0.0 < ms < 60_000.0
