"""`flash_attn_func` on the GPU, recorded, transformed and watched: the bits of a plain call, also
of one that is remembered; and what a compiled call costs the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import flash_attention
from flash_helpers.check.tolerance import bitwise_equal
from tests.gpu.times import HOST_BAR, host_cost, host_costs
from tests.torch_op.test_ways import each
from tests.torch_op.ways import REFUSED, RIGHT, RIGHT_GRADIENTS, Qkv, Way, attend, eager_gradients

pytestmark = pytest.mark.gpu


@pytest.fixture
def qkv() -> Qkv:
    """Of a call that was made before, and is remembered. Of a head dimension whose gradients this
    build has as well."""
    built = [c for c in flash_attention.available_kernels() if not c.SERVES]
    forward, backward = ({c.d_head for c in built if c.GRADIENTS is g} for g in (False, True))
    d_head = max(forward & backward, default=128)  # compiled on first use
    made = [
        torch.randn((2, 200, heads, d_head), device="cuda", dtype=torch.bfloat16)
        for heads in (4, 2, 2)
    ]
    q, k, v = made
    for _ in range(2):
        attend(q, k, v)
    return q, k, v


@each(dict(RIGHT))
def test_the_output_is_that_of_a_plain_call(way: Way, qkv: Qkv) -> None:
    assert bitwise_equal(way(*qkv), attend(*qkv))


@each(dict(RIGHT_GRADIENTS))
def test_the_gradients_are_those_of_a_plain_call(way: Callable[..., Qkv], qkv: Qkv) -> None:
    for found, expected in zip(way(*qkv), eager_gradients(*qkv), strict=True):
        assert bitwise_equal(found, expected)


@pytest.mark.parametrize("case", REFUSED)
def test_a_remembered_call_is_refused(case: str, qkv: Qkv) -> None:
    expected = attend(*qkv)
    for provoke in REFUSED[case]:
        with pytest.raises((AssertionError, NotImplementedError, TypeError, ValueError)):
            provoke(*qkv)
    torch.cuda.synchronize()
    assert bitwise_equal(attend(*qkv), expected)


def test_opcheck(qkv: Qkv) -> None:
    leaves = tuple(x.requires_grad_() for x in qkv)
    found = torch.library.opcheck(torch.ops.flash_attention.fwd.default, leaves)
    assert {*found.values()} == {"SUCCESS"}


def test_opcheck_of_the_backward_pass(qkv: Qkv) -> None:
    operations = torch.ops.flash_attention
    o, lse = operations.fwd(*qkv)
    arguments = torch.randn_like(o), torch.randn_like(lse), *qkv, o, lse, None, False, True, 7
    found = torch.library.opcheck(operations.bwd.default, arguments)
    assert {*found.values()} == {"SUCCESS"}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_serves_every_length(mode: str, qkv: Qkv) -> None:
    """With CUDA graphs, one for each length."""
    torch._dynamo.reset()
    compiled: Any = torch.compile(attend, fullgraph=True, mode=mode, dynamic=mode == "default")
    lengths = (200, 136, 72)
    for length in lengths * 3:
        part = [x[:, :length].contiguous() for x in qkv]
        assert bitwise_equal(compiled(*part).clone(), attend(*part))


def test_autocast_makes_fp32_bf16(qkv: Qkv) -> None:
    full = [x.float() for x in qkv]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for _ in range(2):
            assert bitwise_equal(attend(full[0], full[1], full[2]), attend(*qkv))


def _small(qkv: Qkv) -> Qkv:
    """With as many heads of q as of k: PyTorch's FlashAttention takes no others."""
    q, k, v = (x[:1, :64, :2].contiguous() for x in qkv)
    return q, k, v


def test_a_compiled_call_costs_the_host_less_than_pytorch_s(qkv: Qkv) -> None:
    torch._dynamo.reset()
    q, k, v = _small(qkv)

    def torchs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    ours: Any = torch.compile(attend, fullgraph=True)
    theirs: Any = torch.compile(torchs, fullgraph=True)
    with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        cost = host_costs({"ours": lambda: ours(q, k, v), "PyTorch's": lambda: theirs(q, k, v)})
    print(f"compiled: {cost}")
    assert cost["ours"] <= cost["PyTorch's"]


def test_autocast_and_recording_leave_a_plain_call_cheap(qkv: Qkv) -> None:
    q, k, v = _small(qkv)
    cost = host_cost(lambda: attend(q, k, v), q, k, v)
    print(cost)
    assert cost.ratio <= HOST_BAR, str(cost)
