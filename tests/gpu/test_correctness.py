"""Every kernel of the build against an fp32 reference: the row rule, margins, bitwise repeats."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import FlashForwardKernelConfig, KernelConfig
from tests.gpu.inputs import forward_kernels, guarded, problem
from tests.guarded import margins_ok

pytestmark = pytest.mark.gpu

SESSION_SEED = int(torch.randint(2**31, ()).item())
SEQUENCE_LENGTHS = (512, 1024, 2048, 4096)
REPEATS = 100


def ids(config: KernelConfig) -> str:
    return config.kernel_name()


def lse_error(lse: torch.Tensor, reference: torch.Tensor) -> float:
    return float((lse - reference).abs().max())


@pytest.mark.parametrize("config", forward_kernels(), ids=ids)
@pytest.mark.parametrize("seq_len", SEQUENCE_LENGTHS)
def test_rows_are_right(config: KernelConfig, seq_len: int) -> None:
    print(f"seed {SESSION_SEED}")
    batch, heads = 2, 3
    q, k, v, reference, reference_lse = problem(
        config.dtype, batch, heads, seq_len, config.d_head, SESSION_SEED
    )
    o = guarded(tuple(q.shape), q.dtype)
    lse = torch.full((batch, heads, seq_len), float("nan"), device="cuda")
    flash_attention.forward(config, q, k, v, o, lse=lse)
    outcome = compare(o, reference)
    assert outcome.passed, outcome.describe()
    assert margins_ok(o)
    assert lse_error(lse, reference_lse) < 1e-3


@pytest.mark.parametrize("config", forward_kernels(), ids=ids)
def test_repeats_are_bitwise_equal(config: KernelConfig) -> None:
    print(f"seed {SESSION_SEED}")
    q, k, v, _, _ = problem(config.dtype, 4, 16, 512, config.d_head, SESSION_SEED)
    first = flash_attention.forward(config, q, k, v)
    repeats = [torch.full_like(q, float("nan")) for _ in range(2)]
    for i in range(REPEATS - 1):
        o = repeats[i % 2].fill_(float("nan"))
        flash_attention.forward(config, q, k, v, o)
        assert bitwise_equal(o, first), f"repeat {i + 1} differs"


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_kernels_that_only_move_data_differently_agree_bitwise(dtype: DType) -> None:
    """Outputs depend on d_head, B_c and the softmax variant, on nothing else. (Earlier steps walk
    and sum in other orders: each is its own class.)"""
    classes: dict[tuple[int, int, bool, int], list[KernelConfig]] = {}
    for config in forward_kernels():
        if config.dtype == dtype and isinstance(config, FlashForwardKernelConfig):
            step = getattr(config, "step", 0)
            key = (config.d_head, config.B_c, config.optimized_softmax, step)
            classes.setdefault(key, []).append(config)
    if not classes:
        pytest.skip(f"this build has no {dtype.name} kernels")
    for key, configs in classes.items():
        q, k, v, _, _ = problem(dtype, 1, 2, 512, key[0], SESSION_SEED)
        first = flash_attention.forward(configs[0], q, k, v)
        for config in configs[1:]:
            o = flash_attention.forward(config, q, k, v)
            assert bitwise_equal(o, first), f"{config.short_form()} and {configs[0].short_form()}"


@pytest.mark.parametrize("spread", [3.0, 0.01])
def test_other_distributions(spread: float) -> None:
    """Peaked and nearly uniform softmaxes, a kernel of each family, dtype, head size and block, and
    of each earlier step."""
    kinds = {
        (c.FAMILY, c.dtype, c.d_head, c.blocks(), c.n_threads(), getattr(c, "step", 0)): c
        for c in forward_kernels()
    }
    for config in kinds.values():
        q, k, v, reference, _ = problem(
            config.dtype, 1, 2, 1024, config.d_head, SESSION_SEED, spread
        )
        outcome = compare(flash_attention.forward(config, q, k, v), reference)
        assert outcome.passed, f"{config.short_form()}: {outcome.describe()}"
