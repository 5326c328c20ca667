"""Gradients of packed sequences, windows, soft caps and sinks, against their definition."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.sm80_bwd.sets import get_ampere_backward_kernel_configs
from flash_helpers.kernels.sm80_bwd_serve.config import AmpereServeBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd_serve.sets import get_ampere_serve_backward_kernel_configs

from .packed import Packed, check_equal_lengths_with_a_window, varlen
from .problems import FULL, NAN, ints
from .sinks import SinkGradient

CAPPED = ServeRule(causal=True, window=(20, -1), softcap=2.0, scale=0.2)
BOTH_SIDES = ServeRule(window=(9, 33))


@pytest.mark.parametrize(
    "problem",
    [
        Packed([17, 0, 70, 1], [40, 5, 70, 130]),
        Packed([70, 3], [140, 3], CAPPED, with_sinks=True, with_d_lse=True),
        Packed([40, 9], [90, 0], FULL, heads=1, with_sinks=True),
        Packed([150], [140], BOTH_SIDES, d=72, d_v=24),
        Packed([33], [80], BOTH_SIDES, d=128, heads=3, kv_heads=3, dtype=torch.bfloat16),
    ],
    ids=["lengths", "all", "no keys", "both sides", "128"],
)
def test_gradients_of_packed_sequences(problem: Packed) -> None:
    problem.check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_what_a_sinks_gradient_may_be_off(dtype: torch.dtype) -> None:
    """In bf16 an honest one of these is further off than 0.002 of itself and 0.002."""
    problem = Packed([200], [300], CAPPED, heads=6, kv_heads=2, dtype=dtype, with_sinks=True)
    _, found = problem.call()
    assert problem.sinks is not None and found is not None
    expected = SinkGradient(problem.rule, problem.sinks, dtype)
    q, k, v, d_o = (problem.tensors[name][3:-2] for name in ("q", "k", "v", "d_o"))
    expected.add(q, k, v, d_o, None)
    assert 0.1 < expected.worst(found) < 0.8
    assert expected.worst(1.02 * found) > 1
    assert expected.worst(found.where(found != found[2], torch.nan)) == torch.inf


@pytest.mark.slow
@pytest.mark.parametrize("config", get_ampere_serve_backward_kernel_configs(), ids=str)
def test_every_kernel(config: AmpereServeBackwardKernelConfig) -> None:
    dtype = config.dtype.to_torch_dtype()
    Packed([17, 40], [70, 33], CAPPED, d=config.d_head, dtype=dtype, with_sinks=True).check()


def test_edges_of_windows() -> None:
    """Keys 127 and 128, of two thread blocks, are seen by queries of two blocks."""
    Packed([130], [130], ServeRule(window=(1, 1)), heads=1).check()


def test_many_empty_sequences() -> None:
    lengths = [0] * 34
    for i in (0, 17, 33):
        lengths[i] = 2
    Packed(lengths, [1] * 34, heads=1).check()


def test_used_rows_alone_have_gradients() -> None:
    problem = Packed([20, 30], [25, 40], with_sinks=True)
    for name, a, b in (("q", 13, 23), ("d_o", 13, 23), ("k", 23, 28), ("v", 23, 28)):
        problem.tensors[name][a:b] = NAN  # between what is used
    problem.check(seqused_q=ints([10, 30]), seqused_k=ints([20, 33]))


def test_equal_lengths_have_the_bits_of_the_other_backward_pass() -> None:
    """The kernels add up in the same order."""
    torch.manual_seed(0)
    q, d_o = (torch.randn(2, 80, 2, 64, dtype=torch.float16) for _ in range(2))
    k, v = (torch.randn(2, 80, 1, 64, dtype=torch.float16) for _ in range(2))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    starts = ints([0, 80, 160])
    o, lse, _ = varlen(
        *(x.flatten(0, 1) for x in leaves), starts, starts, causal=True, return_attn_probs=True
    )
    found = torch.autograd.grad(o, leaves, d_o.flatten(0, 1))
    config = next(c for c in get_ampere_backward_kernel_configs() if c.d_head == 64)
    expected = flash_attention.backward(
        config, d_o, q, k, v, o.detach().view(d_o.shape), lse.detach().view(2, 2, 80).movedim(0, 1)
        .contiguous(), causal=True,
    )  # fmt: skip
    for a, b in zip(found, expected, strict=True):
        assert b is not None and bitwise_equal(a, b)


def test_gradients_of_equal_lengths_with_a_window() -> None:
    check_equal_lengths_with_a_window()


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_those_that_are_asked_for_alone(name: str) -> None:
    Packed([20, 30], [25, 40]).check_alone(name)


def test_a_negative_scale() -> None:
    problem = Packed([20], [25], ServeRule(causal=True, scale=-0.1))
    problem.check()


def test_empty_calls_have_gradients_of_zero() -> None:
    q = torch.zeros(0, 2, 64, dtype=torch.float16, requires_grad=True)
    k = torch.ones(4, 1, 64, dtype=torch.float16, requires_grad=True)
    o = varlen(q, k, k, ints([0, 0]), ints([0, 4]))
    o.sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape
    assert k.grad is not None and not k.grad.any()


def test_what_is_refused() -> None:
    q, k = (torch.zeros(4, 1, 64, dtype=torch.float16, requires_grad=True) for _ in range(2))
    starts = ints([0, 4])
    with pytest.raises(ValueError, match="out is given, and an input requires a gradient"):
        varlen(q, k, k, starts, starts, out=torch.empty_like(q))
    with pytest.raises(ValueError, match=r"k has shape \(1, 4, 1, 64\), and an input requires a"):
        varlen(q, k[None], k[None], starts, None)
    o = varlen(q, k, k, starts, starts)
    assert isinstance(o, torch.Tensor)
    (first,) = torch.autograd.grad(o.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="cannot be differentiated again"):
        first.sum().backward()  # type: ignore[no-untyped-call]
