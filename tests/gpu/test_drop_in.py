"""PyTorch's scaled_dot_product_attention with these kernels, on the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flash_attention
from flash_attention.drop_in.sdpa import NAME
from flash_helpers.check.tolerance import bitwise_equal
from tests.drop_in_calls import Qkv, ours, sdpa, with_gradients
from tests.gpu.times import microseconds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="torch is too old"),
]


@pytest.fixture(autouse=True)
def flash() -> Iterator[None]:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        yield
    flash_attention.disable()


def tensors(d_head: int = 128, length: int = 200) -> Qkv:
    made = torch.Generator("cuda").manual_seed(length)
    q, k, v = (
        torch.randn(2, 4, length, d_head, device="cuda", dtype=torch.float16, generator=made)
        for _ in "qkv"
    )
    return q, k, v


def test_output_and_gradients_are_those_of_flash_attn_func() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        expected = with_gradients(lambda *x: ours(*x, causal=True), tensors())
        flash_attention.enable()
        for _ in range(2):
            found = with_gradients(lambda *x: sdpa(*x, is_causal=True), tensors())
            assert all(map(bitwise_equal, found, expected)) and len(found) == 4
    finally:
        torch.use_deterministic_algorithms(False)


def test_compiled_calls_take_them() -> None:
    expected = ours(*tensors(), softmax_scale=0.3)
    torch._dynamo.reset()
    compiled: Any = torch.compile(lambda *x: sdpa(*x, scale=0.3), fullgraph=True)
    theirs = compiled(*tensors())
    flash_attention.enable()
    assert bitwise_equal(compiled(*tensors()), expected)
    assert (theirs - expected).abs().max() < 4e-3


@pytest.mark.parametrize("case", ["dropout", "d_head 80", "heads of 72"])
def test_what_these_kernels_do_not_serve_is_pytorch_s(case: str) -> None:
    qkv = tensors({"d_head 80": 80, "heads of 72": 72}.get(case, 128))

    def call(*x: Tensor) -> Tensor:
        torch.manual_seed(3)
        found: Tensor = sdpa(*x, dropout_p=0.2 if case == "dropout" else 0.0)
        return found

    expected = with_gradients(call, qkv)
    flash_attention.enable()
    found = with_gradients(call, qkv)
    assert bitwise_equal(found[0], expected[0])
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert torch.allclose(one, other, atol=1e-3, rtol=1e-2)  # it adds in any order


def test_disable_restores_pytorch_s() -> None:
    qkv = tensors()
    expected = sdpa(*qkv)
    flash_attention.enable()
    flash_attention.enable()
    assert torch.nn.attention.current_flash_attention_impl() == NAME
    assert bitwise_equal(sdpa(*qkv), ours(*qkv))
    flash_attention.disable()
    flash_attention.disable()
    assert torch.nn.attention.current_flash_attention_impl() is None
    assert bitwise_equal(sdpa(*qkv), expected)


def test_what_only_dropout_needs_belongs_to_one_call() -> None:
    """What calls return may be written to, as compiled functions do with what nobody reads."""
    flash_attention.enable()
    qkv, flash = tensors(), torch.ops.aten._scaled_dot_product_flash_attention
    sdpa(*qkv)
    calls = [flash(*qkv)[6:8] for _ in range(3)]
    assert len({x.data_ptr() for call in calls for x in call}) == 6


@pytest.mark.parametrize("length", [77, 78])
def test_a_kind_s_first_calls_may_be_a_cuda_graph_s(length: int) -> None:
    """Nothing that is kept for later calls may lie in the graph's memory."""
    qkv = tensors(length=length)
    flash_attention.enable()
    torch._dynamo.reset()
    compiled: Any = torch.compile(lambda *x: sdpa(*x) * 2, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        found = with_gradients(compiled, qkv) if length == 77 else [compiled(*qkv)]
        assert bitwise_equal(found[0], ours(*qkv) * 2)


def test_a_kind_s_first_call_keeps_no_memory() -> None:
    flash_attention.enable()
    with_gradients(sdpa, tensors(length=81))
    qkv = tensors(length=82)
    before = torch.cuda.memory_allocated()
    with_gradients(sdpa, qkv)
    assert torch.cuda.memory_allocated() == before


def test_a_call_costs_the_host_no_more_than_pytorch_s_own() -> None:
    qkv = tensors(length=64)
    rounds: list[tuple[float, float]] = []
    for _ in range(22):
        flash_attention.enable()
        sdpa(*qkv)
        cost = microseconds(lambda: sdpa(*qkv))
        flash_attention.disable()
        sdpa(*qkv)
        rounds.append((cost, microseconds(lambda: sdpa(*qkv))))
    found, theirs = (statistics.median(x) for x in zip(*rounds[1:], strict=True))
    print(f"a call of scaled_dot_product_attention: {found:.2f} us, PyTorch's own {theirs:.2f} us")
    assert found <= theirs
