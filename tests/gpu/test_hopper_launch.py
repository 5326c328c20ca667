"""How kernels of the Hopper family are launched: strides, graphs, tensor maps, refusals, and the
choice of the family."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import flash_attention
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import HopperForwardKernelConfig
from flash_helpers.kernels.problem import AttentionProblem
from tests.gpu.hopper import built, check, draw, some

pytestmark = pytest.mark.gpu


def head_major(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def sequence_major(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def padded_rows(x: torch.Tensor) -> torch.Tensor:
    wide = torch.full((*x.shape[:3], x.shape[3] + 8), float("nan"), device=x.device, dtype=x.dtype)
    wide[..., : x.shape[3]] = x
    return wide[..., : x.shape[3]]


def every_other_row(x: torch.Tensor) -> torch.Tensor:
    wide = torch.full((x.shape[0], 2 * x.shape[1], *x.shape[2:]), float("nan"), device=x.device)
    wide = wide.to(x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


@some
@pytest.mark.parametrize("layout", [head_major, sequence_major, padded_rows, every_other_row])
@pytest.mark.parametrize("which", range(4), ids=list("qkvo"))
def test_every_tensor_has_strides_of_its_own(
    config: HopperForwardKernelConfig, layout: Callable[[torch.Tensor], torch.Tensor], which: int
) -> None:
    tensors = [*draw(config, (2, 203, 331, 4, 4))]
    tensors.append(torch.full_like(tensors[0], float("nan")))
    tensors[which] = layout(tensors[which])
    q, k, v, o = tensors
    reference, _ = attention_reference(q, k, v, causal=True)
    outcome = compare(flash_attention.forward(config, q, k, v, o, causal=True), reference)
    assert outcome.passed, outcome.describe()


@some
def test_packed_and_expanded_views(config: HopperForwardKernelConfig) -> None:
    """q, k, v of one tensor; keys and values that all entries of the batch share (stride 0)."""
    dtype = config.dtype.to_torch_dtype()
    packed = torch.randn(2, 333, 3, 4, config.d_head, device="cuda").to(dtype)
    q, k, v = packed.unbind(2)
    check(config, q, k, v, causal=True)
    q, k, v = draw(config, (3, 200, 301, 2, 2))
    shared_k, shared_v = k[:1].expand(3, -1, -1, -1), v[:1].expand(3, -1, -1, -1)
    check(config, q, shared_k, shared_v, causal=False)


@some
def test_a_graph_replays_with_new_inputs(config: HopperForwardKernelConfig) -> None:
    """The first call of all is inside the capture: attributes and tensor maps must not break it."""
    q, k, v = draw(config, (2, 201, 333, 4, 2))
    o = torch.empty_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flash_attention.forward(config, q, k, v, o, causal=True)
    for _ in range(3):
        q.copy_(torch.randn_like(q))
        o.fill_(float("nan"))
        graph.replay()
        assert bitwise_equal(o, flash_attention.forward(config, q, k, v, causal=True))


@some
def test_new_tensors_at_old_addresses(config: HopperForwardKernelConfig) -> None:
    """torch's allocator hands memory out again: other shapes at an address are other maps."""
    for round in range(6):
        length = 100 + 37 * (round % 3)
        q, k, v = draw(config, (2, length, 2 * length, 2, 1 + round % 2))
        check(config, q, k, v, causal=bool(round % 2))
        del q, k, v


@some
@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf"), 1e39])
def test_scales_that_are_refused(config: HopperForwardKernelConfig, scale: float) -> None:
    q, k, v = draw(config, (1, 64, 64, 1, 1))
    expected = flash_attention.forward(config, q, k, v)
    with pytest.raises(ValueError, match=r"softmax_scale is .*: it must be finite"):
        flash_attention.forward(config, q, k, v, softmax_scale=scale)
    assert bitwise_equal(flash_attention.forward(config, q, k, v), expected)


@some
def test_a_refusal_leaves_the_process_healthy(config: HopperForwardKernelConfig) -> None:
    q, k, v = draw(config, (1, 100, 100, 2, 2))
    expected = flash_attention.forward(config, q, k, v)
    shifted = torch.empty(q.numel() + 1, device="cuda", dtype=q.dtype)[1:].view(q.shape)
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        flash_attention.forward(config, shifted, k, v)
    with pytest.raises(ValueError, match="k is on cpu"):
        flash_attention.forward(config, q, k.cpu(), v)
    with pytest.raises(ValueError, match="they must be equal"):
        flash_attention.forward(config, q, k, v[:, :99])
    with pytest.raises(TypeError, match="causal is an int"):
        flash_attention.forward(config, q, k, v, causal=1)  # type: ignore[arg-type]
    q2, k2, v2 = (x.expand(2, -1, -1, -1) for x in (q, k, v))
    with pytest.raises(ValueError, match="overlap in memory"):
        flash_attention.forward(config, q2, k2, v2, torch.empty_like(q).expand(2, -1, -1, -1))
    assert bitwise_equal(flash_attention.forward(config, q, k, v), expected)


def test_flash_attn_func_takes_the_family() -> None:
    """On a device of compute capability 9.0, for every head dimension that is built."""
    from flash_attention import dispatch

    for dtype, d_head in sorted({(c.dtype, c.d_head) for c in built()}):
        problem = AttentionProblem(dtype, 2, 203, 311, 4, 2, d_head, causal=True)
        chosen = dispatch.choose(problem, torch.device("cuda", 0))
        assert isinstance(chosen, HopperForwardKernelConfig)
        q = torch.randn(2, 203, 4, d_head, device="cuda").to(dtype.to_torch_dtype())
        k, v = torch.randn(2, 2, 311, 2, d_head, device="cuda").to(q.dtype).unbind(0)
        o, lse, _ = flash_attention.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
        reference, reference_lse = attention_reference(q, k, v, causal=True)
        outcome = compare(o, reference)
        assert outcome.passed, outcome.describe()
        assert (lse - reference_lse).abs().max() < 1e-3 and math.isfinite(float(lse.sum()))
