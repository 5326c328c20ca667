"""PyTorch's scaled_dot_product_attention with these kernels, on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity
from torch.utils.flop_counter import FlopCounterMode

import flash_attention
from flash_attention.drop_in import sdpa_kernels
from flash_attention.drop_in.sdpa import NAME
from flash_helpers.check.tolerance import bitwise_equal
from tests.drop_in_calls import Qkv, ours, sdpa, with_gradients

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="torch is too old"),
]


@pytest.fixture(autouse=True)
def flash() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
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


@pytest.mark.parametrize("d_head", [36, 72, 80, 160])
def test_head_dimensions_that_no_dense_kernel_has(d_head: int) -> None:
    """36 is filled up by PyTorch, but where a call goes past its dispatcher."""
    qkv = tensors(d_head)
    torch.use_deterministic_algorithms(True)
    try:
        expected = with_gradients(lambda *x: ours(*x, causal=True), qkv)
        flash_attention.enable()
        with torch.no_grad():
            plain = sdpa(*qkv, is_causal=True)
        found = with_gradients(lambda *x: sdpa(*x, is_causal=True), qkv)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(bitwise_equal, found, expected)) and len(found) == 4
    assert bitwise_equal(plain, expected[0])


def test_what_these_kernels_do_not_serve_is_pytorch_s() -> None:
    qkv = tensors()

    def call(*x: Tensor) -> Tensor:
        torch.manual_seed(3)
        found: Tensor = sdpa(*x, dropout_p=0.2)
        return found

    expected = with_gradients(call, qkv)
    flash_attention.enable()
    found = with_gradients(call, qkv)
    assert bitwise_equal(found[0], expected[0])
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert torch.allclose(one, other, atol=1e-3, rtol=1e-2)  # it adds in any order


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.22, 0.48])
def test_gradients_with_dropout_are_pytorch_s(dropout: float, dtype: torch.dtype) -> None:
    """The same bits under the same seed, also after calls without dropout: what PyTorch's forward
    pass leaves for its backward pass is not ours to read. So is the mask that its tests ask for."""
    q, k, v = (x.to(dtype) for x in tensors(length=143))
    qkv, scale = (q, k[:, :, :128], v[:, :, :128]), 0.3

    def both() -> list[Tensor]:
        torch.manual_seed(5)
        found = with_gradients(lambda *x: sdpa(*x, dropout_p=dropout, scale=scale), qkv)
        operation = torch.ops.aten._scaled_dot_product_flash_attention
        o, *_, mask = operation(*qkv, dropout, False, True, scale=scale)
        return [*found, o, mask[:, :, :143, :128].contiguous()]  # the rest may be unwritten

    torch.use_deterministic_algorithms(True)
    try:
        expected = both()
        flash_attention.enable()
        with_gradients(sdpa, qkv)
        found = both()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(bitwise_equal, found, expected)) and len(found) == 6


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


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that go through PyTorch's dispatcher to what is registered there."""
    calls: list[tuple[Any, ...]] = []
    kept = sdpa_kernels.forward

    def forward(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return kept(*given, **named)

    monkeypatch.setattr(sdpa_kernels, "forward", forward)
    flash_attention.enable()
    return calls


@pytest.mark.parametrize("layout", ["as it is", "transposed", "parts of one tensor"])
def test_plain_calls_go_past_the_dispatcher(layout: str, registered: list[tuple[Any, ...]]) -> None:
    q, k, v = tensors(length=83)
    if layout == "transposed":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if layout == "parts of one tensor":
        q, k, v = torch.stack([x.transpose(1, 2) for x in (q, k, v)], 2).transpose(1, 3).unbind(2)
    for _ in range(3):
        found = sdpa(q, k, v, is_causal=True, scale=0.3)
        assert bitwise_equal(found, ours(q, k, v, causal=True, softmax_scale=0.3))
    assert registered == []
    flash_attention.disable()
    assert found.stride() == sdpa(q, k, v).stride()


def test_grouped_heads_go_past_it_where_they_are_asked_for(
    registered: list[tuple[Any, ...]],
) -> None:
    q, k, v = tensors(length=84)
    k, v = k[:, :2], v[:, :2]
    for _ in range(2):
        assert bitwise_equal(sdpa(q, k, v, enable_gqa=True), ours(q, k, v))
    assert registered == []
    with pytest.raises(RuntimeError):
        sdpa(q, k, v)


def test_what_pytorch_would_compute_otherwise_it_does(registered: list[tuple[Any, ...]]) -> None:
    """Also after calls like them were remembered."""
    qkv = tensors(length=85)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION):
        sdpa(*qkv)
        with sdpa_kernel(backend):
            found = sdpa(*qkv)
            flash_attention.disable()
            assert bitwise_equal(found, sdpa(*qkv))
        flash_attention.enable()
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        q, k, v = qkv
        causal = torch.ones(85, 60, device="cuda", dtype=torch.bool).tril()
        for _ in range(2):
            found = sdpa(q, k[:, :, :60], v[:, :, :60], is_causal=True)
            expected = sdpa(q, k[:, :, :60], v[:, :, :60], attn_mask=causal)
            assert (found - expected).abs().max() < 4e-3
    assert registered == []


def test_calls_that_are_seen_go_through_the_dispatcher(
    registered: list[tuple[Any, ...]],
) -> None:
    qkv = tensors(length=86)
    expected = sdpa(*qkv)
    with torch.autocast("cuda", torch.bfloat16):
        assert sdpa(*qkv).dtype == torch.bfloat16
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profile:
        assert bitwise_equal(sdpa(*qkv), expected)
    assert "aten::scaled_dot_product_attention" in {event.key for event in profile.key_averages()}
    with FlopCounterMode(display=False) as counter:
        assert bitwise_equal(sdpa(*qkv), expected)
    assert counter.get_total_flops() == 4 * 2 * 4 * 86 * 86 * 128
    assert len(registered) == 3


def test_a_cuda_graph_may_have_them(registered: list[tuple[Any, ...]]) -> None:
    qkv = tensors(length=87)
    expected = sdpa(*qkv)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sdpa(*qkv)
    found.zero_()
    graph.replay()
    assert bitwise_equal(found, expected) and registered == []
