"""While plain calls of scaled_dot_product_attention are offered to the extension first, everything
that looks at PyTorch's function finds what it was. Plain calls themselves need a GPU: tests/gpu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from torch.overrides import TorchFunctionMode

from flash_attention.drop_in import sdpa_calls
from flash_attention.drop_in.sdpa_calls import WATCHERS, detour, serve
from flash_attention.interface import exchange_api
from flash_attention.surroundings import surroundings
from flash_helpers.check.tolerance import bitwise_equal
from tests.drop_in_calls import Qkv, ours, sdpa, with_gradients

pytestmark = pytest.mark.skipif(exchange_api() is None, reason="this torch is too old for it")


@pytest.fixture(autouse=True)
def offered() -> Iterator[None]:
    found = detour()
    yield
    found.end()


def tensors() -> Qkv:
    made = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(1, 2, 40, 64, generator=made).half() for _ in "qkv")
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_the_function_is_the_same_object() -> None:
    assert (
        functional.scaled_dot_product_attention is sdpa is torch._C._nn.scaled_dot_product_attention
    )
    assert sdpa.__name__ == "scaled_dot_product_attention" and "enable_gqa" in str(sdpa.__doc__)
    assert sdpa in torch.overrides.get_testing_overrides()


def test_errors_are_pytorch_s() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        sdpa(*tensors()[:2])
    with pytest.raises(RuntimeError, match="dtype"):
        sdpa(*tensors()[:2], tensors()[2].float())


class Watching(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_the_function_that_it_compares_with() -> None:
    with Watching() as mode:
        plain(*tensors())
    assert functional.scaled_dot_product_attention in mode.seen


def test_subclasses_of_tensors_see_it() -> None:
    assert bitwise_equal(sdpa(*tensors(), attn_mask=causal_lower_right(40, 40)), plain(*tensors()))
    rows = [x[0].transpose(0, 1) for x in tensors()]
    jagged = [torch.nested.nested_tensor([x, x[:9]], layout=torch.jagged) for x in rows]
    found = sdpa(*(x.transpose(1, 2) for x in jagged)).transpose(1, 2)
    expected = sdpa(*tensors())[0].transpose(0, 1)
    assert found.is_nested and (found[0] - expected).abs().max() < 2e-3


def graph_of(function: Callable[..., Any]) -> list[object]:
    graphs: list[object] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.extend(node.target for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep, fullgraph=True)(*tensors())
    return graphs


def test_compilers_and_tracers_record_it() -> None:
    assert graph_of(plain).count(sdpa) == 1
    symbolic: Any = torch.fx.symbolic_trace(plain)
    assert [node.target for node in symbolic.graph.nodes].count(sdpa) == 1
    trace: Any = torch.jit.trace
    shorter = [x[:, :, :24] for x in tensors()]
    for graph, call in (
        (trace(plain, tensors()), shorter), (torch.jit.script(plain), shorter),
        (make_fx(plain)(*tensors()), tensors()),
    ):  # fmt: skip
        assert "scaled_dot_product" in str(graph.graph)
        assert bitwise_equal(graph(*call), plain(*call))


def test_gradients_and_vmap_are_as_before() -> None:
    assert len(with_gradients(plain, tensors())) == 4
    found = torch.vmap(lambda *x: plain(*(y[None] for y in x))[0])(*tensors())
    assert (found - plain(*tensors())).abs().max() < 2e-3


SEEN_BY: dict[str, Callable[[], Any]] = {
    "a mode": Watching,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "the profiler": lambda: torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ),
}


@pytest.mark.parametrize("who", SEEN_BY)
def test_the_short_way_is_closed_to_what_is_seen(who: str) -> None:
    around = surroundings(*WATCHERS)
    assert around.is_quiet()
    with SEEN_BY[who]():
        assert not around.is_quiet()
    assert around.is_quiet()


def test_a_first_call_has_the_output_and_strides_of_pytorch_s() -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors())
    narrow = (q[..., :20], k[..., :20], v[..., :20])  # of which no dense kernel is
    for call in ((q, k, v), tensors(), narrow):
        found = serve(*call, 0.3, True, False)
        assert found is not None and bitwise_equal(
            found, ours(*call, softmax_scale=0.3, causal=True)
        )
        assert found.stride() == torch.empty_like(call[0]).stride()


def test_what_is_pytorch_s_to_compute_or_to_refuse_is_left_to_it() -> None:
    q, k, v = tensors()
    zeros = torch._efficientzerotensor(q.shape, dtype=q.dtype)
    wide = torch.zeros(1, 2, 8, 264, dtype=q.dtype)
    calls: tuple[Qkv, ...] = (
        (q.float(), k.float(), v.float()), (q, k, v[:, :, :8]), (q, k, v[..., :32]),
        (wide, wide, wide), (zeros, k, v),
    )  # fmt: skip
    for recorded in (False, True):
        assert [serve(*call, None, False, recorded) for call in calls] == [None] * 5


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_first_call_that_is_recorded_has_the_gradients(deterministic: bool) -> None:

    def recorded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = serve(q, k, v, 0.3, True, True)
        assert found is not None
        return found

    torch.use_deterministic_algorithms(deterministic)
    try:
        found = with_gradients(recorded, tensors())
        expected = with_gradients(lambda *x: ours(*x, softmax_scale=0.3, causal=True), tensors())
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(bitwise_equal, found, expected)) and len(found) == 4
    assert [x.stride() for x in found] == [tensors()[0].stride()] * 4


def test_gradients_that_no_kernel_has_are_left_to_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdpa_calls, "is_served", lambda *_, gradients=False: not gradients)
    assert serve(*tensors(), None, False, True) is None
    assert serve(*tensors(), None, False, False) is not None
