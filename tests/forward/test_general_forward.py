"""forward() on CPU tensors beyond whole blocks: any lengths, causal, nothing to see; the general
kernels in the emulator, whose race detector watches, against an fp32 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import flash_attention
from flash_attention import emulated
from flash_attention.checks.arguments import make_plan
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import (
    FlashForwardKernelConfig,
    get_covering_kernel_configs,
    get_sm80_kernel_configs,
    has_general_kernel,
    parse_sm80_name,
)
from flash_helpers.kernels.contract import Variant

from ..guarded import guarded, margins_ok
from . import tensors

NAN = float("nan")

FP16 = parse_sm80_name("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax")
BF16 = parse_sm80_name(
    "(BF16, 64, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
)
# The two ways to load, through registers and without a peeled block: not in builds, but right.
LAZY = replace(FP16, B_c=32, eager_load_blocks=False, optimized_softmax=False)
THROUGH_REGISTERS = replace(BF16, async_copy=False, eager_load_blocks=False)
SHAPES = (  # (query length, key length)
    (1, 1), (1, 203), (63, 63), (113, 127), (127, 113), (203, 63), (64, 203), (203, 128),
)  # fmt: skip


def name_of(config: FlashForwardKernelConfig) -> str:
    return config.kernel_name()


def draw(
    config: FlashForwardKernelConfig, q_len: int, k_len: int, heads: int, kv_heads: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q_shape, k_shape = (2, q_len, heads, config.d_head), (2, k_len, kv_heads, config.d_head)
    return tensors.draw(seed, config.dtype.to_torch_dtype(), q_shape, k_shape)


def check(
    config: FlashForwardKernelConfig,
    given: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    causal: bool,
    scale: float | None = None,
) -> torch.Tensor:
    q, k, v = given
    o = guarded(tuple(q.shape), q.dtype)
    lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), NAN)
    flash_attention.forward(config, q, k, v, o, lse=lse, causal=causal, softmax_scale=scale)
    reference, reference_lse = attention_reference(q, k, v, causal=causal, scale=scale)
    outcome = compare(o, reference)
    about = f"{config}, {tuple(q.shape)}, {tuple(k.shape)}, causal {causal}"
    assert outcome.passed, f"{about}: {outcome.describe()}"
    tolerance = 1e-4 * max(
        1.0, float(reference_lse.masked_fill(~reference_lse.isfinite(), 0).max())
    )
    torch.testing.assert_close(lse, reference_lse, atol=tolerance, rtol=0)
    assert margins_ok(o)
    return o


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [FP16, BF16, LAZY, THROUGH_REGISTERS], ids=name_of)
def test_lengths(config: FlashForwardKernelConfig, causal: bool, seed: int) -> None:
    for q_len, k_len in SHAPES:
        check(config, draw(config, q_len, k_len, 2, 1, seed), causal)


@pytest.mark.parametrize("causal", [False, True])
def test_1023(causal: bool, seed: int) -> None:
    """More blocks than one, and the last one short, in both directions."""
    q, k, v = draw(BF16, 1023, 1023, 1, 1, seed)
    check(BF16, (q[:1], k[:1], v[:1]), causal)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    sorted(
        {*get_covering_kernel_configs()}
        | {
            c
            for w in ("all", "progall")
            for c in get_sm80_kernel_configs(w)
            if has_general_kernel(c)
        }
    ),
    ids=name_of,
)
def test_every_general_kernel(config: FlashForwardKernelConfig, seed: int) -> None:
    for causal in (False, True):
        for q_len, k_len in SHAPES:
            check(config, draw(config, q_len, k_len, 2, 1, seed), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [FP16, BF16, LAZY], ids=name_of)
def test_whole_blocks_give_the_same_bits(
    config: FlashForwardKernelConfig, causal: bool, seed: int
) -> None:
    """Without a mask, the general kernel does what the other does. Causal queries that see
    everything get what they get without a mask."""
    q, k, v = draw(config, 1 if causal else 256, 256, 1, 1, seed)
    without = flash_attention.forward(config, q, k, v)
    again = torch.full_like(q, NAN)
    plan = make_plan(config, q, k, v, again, None, None, causal)
    inputs = {"q": q, "k": k, "v": v}
    addresses = (*(x.data_ptr() for x in inputs.values()), again.data_ptr(), 0)
    emulated.launch(replace(plan, variant=Variant.ANY), plan.args(*addresses), inputs, {"o": again})
    assert bitwise_equal(again, without)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries(kv_heads: int, seed: int) -> None:
    check(BF16, draw(BF16, 70, 131, 8, kv_heads, seed), causal=True)


def test_strided_views(seed: int) -> None:
    """Packed QKV, heads before the sequence, and padded rows whose padding is NaN."""
    torch.manual_seed(seed)
    packed = torch.randn(2, 77, 3, 2, 128).half()
    head_major = (torch.randn(2, 2, 77, 128).half().transpose(1, 2) for _ in range(3))
    wide = torch.full((3, 2, 77, 2, 136), NAN).half()
    wide[..., :128] = torch.randn(3, 2, 77, 2, 128).half()
    padded = wide[..., :128]
    for q, k, v in (packed.unbind(2), head_major, padded):
        assert not all(x.is_contiguous() for x in (q, k, v))
        check(FP16, (q, k, v), causal=True)


@pytest.mark.parametrize("factor", [60.0, 1e-3])
def test_large_and_small_logits(factor: float, seed: int) -> None:
    for config in (FP16, LAZY, BF16):
        q, k, v = draw(config, 113, 203, 1, 1, seed)
        for causal in (False, True):
            check(config, ((q.float() * factor).to(q.dtype), k, v), causal)


@pytest.mark.parametrize("config", [FP16, BF16, LAZY, THROUGH_REGISTERS], ids=name_of)
def test_rows_that_see_nothing(config: FlashForwardKernelConfig, seed: int) -> None:
    """No keys at all; whole blocks of blind queries, and blind rows beside others, whose scores and
    values must not matter: not even NaN behind the end of the sequence."""
    q, k, v = draw(config, 300, 0, 2, 1, seed)
    for causal in (False, True):
        assert not check(config, (q, k, v), causal).any()
    q, k, v = draw(config, 300, 40, 2, 1, seed)
    o = check(config, (q, k, v), causal=True)
    assert not o[:, :260].any() and o[:, 260:].any()
    v[:, 3] = NAN
    o = flash_attention.forward(config, q, k, v, causal=True)
    assert not o[:, :260].any()
    assert o[:, 264:].isnan().all()


@pytest.mark.parametrize("config", [FP16, LAZY], ids=name_of)
def test_nan_stays_where_the_formula_has_it(config: FlashForwardKernelConfig, seed: int) -> None:
    """A row of nothing but -inf has no softmax; a row that is masked has one, and it is empty."""
    q, k, v = draw(config, 70, 100, 1, 1, seed)
    k[:] = -torch.inf
    q[:] = q.abs() + 1
    o = flash_attention.forward(config, q, k, v)
    assert o.isnan().all()
    q, k, v = draw(config, 70, 100, 1, 1, seed)
    q[0, 3, 0, 0] = NAN
    o = flash_attention.forward(config, q, k, v, causal=True)
    assert o[0, 3].isnan().all() and o.isnan().sum() == config.d_head


def test_dtypes_are_both_tested() -> None:
    assert {c.dtype for c in (FP16, BF16)} == set(DType)
    assert has_general_kernel(FP16) and has_general_kernel(BF16)
    assert not has_general_kernel(LAZY) and not has_general_kernel(THROUGH_REGISTERS)
