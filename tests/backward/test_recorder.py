"""Recorded calls whose forward pass is queued already: the extension's two passes of the autograd
Function, with tensors of either layout, where the emulator computes the gradients. What a launch
takes is tests/build's and tests/gpu's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import flash_attention
from flash_attention import autograd
from flash_attention.autograd import recorder
from flash_attention.interface import exchange_api
from flash_helpers.check.tolerance import bitwise_equal

pytestmark = pytest.mark.skipif(exchange_api() is None, reason="this torch is too old for it")

attend: Any = flash_attention.flash_attn_func
LAYOUTS = pytest.mark.parametrize("heads_first", [False, True])


def turned(x: Tensor, heads_first: bool) -> Tensor:
    return x.transpose(1, 2) if heads_first else x


class Recorded:
    """A call with what it returns, and the same one by `flash_attn_func`."""

    def __init__(self, heads_first: bool, with_lse: bool = False, **options: Any) -> None:
        made = torch.Generator().manual_seed(5)
        shapes = [(1, 20, 2, 64), (1, 40, 1, 64), (1, 40, 1, 64)]
        plain = [torch.randn(shape, generator=made).half() for shape in shapes]
        o, lse, _ = attend(*plain, **options, return_attn_probs=True)
        self.leaves = [turned(x, heads_first).detach().requires_grad_() for x in plain]
        settings = options.get("softmax_scale"), options.get("causal", False), True
        call = turned(o, heads_first).contiguous(), lse, settings, with_lse
        self.found = recorder(heads_first)(*self.leaves, call)
        self.d_o = torch.randn(self.leaves[0].shape, generator=made).half()
        self.d_lse = torch.randn(lse.shape, generator=made)
        self.same = [x.requires_grad_() for x in plain]
        self.other = attend(*self.same, **options, deterministic=True, return_attn_probs=True)[:2]
        self.heads_first = heads_first

    def expected(self, *wanted: int, with_lse: bool = False) -> list[Tensor]:
        outer = [turned(self.d_o, self.heads_first)] + [self.d_lse] * with_lse
        found = torch.autograd.grad(
            self.other[: len(outer)], [self.same[i] for i in wanted], outer, retain_graph=True
        )
        return [turned(x, self.heads_first) for x in found]

    def gradients(self, *wanted: int, **options: Any) -> tuple[Tensor, ...]:
        asked = [self.leaves[i] for i in wanted]
        return torch.autograd.grad(self.found, asked, self.d_o, **options)


@LAYOUTS
def test_the_gradients_are_those_of_flash_attn_func(heads_first: bool) -> None:
    call = Recorded(heads_first, causal=True, softmax_scale=0.3)
    assert call.found.grad_fn.name().endswith("_RecordedBackward")
    for wanted in ((0, 1, 2), (1,), (0, 2)):
        found = call.gradients(*wanted, retain_graph=True)
        for one, other in zip(found, call.expected(*wanted), strict=True):
            assert bitwise_equal(one, other) and one.stride() == other.stride()


@LAYOUTS
def test_the_log_sum_exp_has_gradients_too(heads_first: bool) -> None:
    call = Recorded(heads_first, with_lse=True)
    found = torch.autograd.grad(call.found, call.leaves, (call.d_o, call.d_lse), retain_graph=True)
    expected = call.expected(0, 1, 2, with_lse=True)
    assert all(map(bitwise_equal, found, expected))
    nothing = torch.autograd.grad(call.found[0].sum() * 0, call.leaves)
    assert not any(x.any() for x in nothing)


def kept(call: Recorded) -> None:
    call.gradients(0, retain_graph=True)
    call.gradients(0)
    call.gradients(0)


def changed(call: Recorded) -> None:
    with torch.no_grad():
        call.leaves[1].add_(1)
    call.gradients(0)


def changed_output(call: Recorded) -> None:
    call.found.mul_(2)
    call.gradients(0)


def twice(call: Recorded) -> None:
    (d_q,) = call.gradients(0, create_graph=True)
    torch.autograd.grad(d_q.sum(), call.leaves)


REFUSED: dict[str, tuple[Callable[[Recorded], None], type[Exception], str]] = {
    "a second time": (kept, RuntimeError, "backward through the graph a second time"),
    "an input changed in place": (changed, RuntimeError, "modified by an inplace operation"),
    "the output changed in place": (changed_output, RuntimeError, "modified by an inplace"),
    "a second derivative": (twice, NotImplementedError, "cannot be differentiated again"),
}


@LAYOUTS
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, heads_first: bool) -> None:
    provoke, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        provoke(Recorded(heads_first))


@LAYOUTS
def test_hooks_of_saved_tensors_see_all_five(heads_first: bool) -> None:
    packed: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x)
        return x * 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call = Recorded(heads_first)
    ours = [x.shape for x in packed[:5]]
    assert ours == [*(x.shape for x in call.leaves), call.found.shape, call.d_lse.shape]
    assert all(map(bitwise_equal, call.gradients(0, 1, 2), call.expected(0, 1, 2)))


@LAYOUTS
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_may_run_it_again(heads_first: bool, use_reentrant: bool) -> None:
    """Each saved tensor is given out once."""
    call = Recorded(heads_first)
    o, lse = call.found.detach(), call.other[1].detach()

    def again(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return recorder(heads_first)(
            q * 1, k * 1, v * 1, (o.clone(), lse, (None, False, True), False)
        )

    checkpoint(again, *call.leaves, use_reentrant=use_reentrant).backward(call.d_o)
    found = [x.grad for x in call.leaves if x.grad is not None]
    assert all(map(bitwise_equal, found, call.expected(0, 1, 2))) and len(found) == 3


@LAYOUTS
def test_compiled_autograd_has_the_same_gradients(heads_first: bool) -> None:
    from torch._dynamo import compiled_autograd

    call = Recorded(heads_first, causal=True)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
        call.found.backward(call.d_o)
    found = [x.grad for x in call.leaves if x.grad is not None]
    assert all(map(bitwise_equal, found, call.expected(0, 1, 2))) and len(found) == 3


@LAYOUTS
def test_anomaly_mode_names_the_call(heads_first: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        call = Recorded(heads_first)
        call.d_o.fill_(float("nan"))
        with pytest.warns(UserWarning, match="Error detected in _RecordedBackward"):  # noqa: SIM117
            with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
                call.gradients(0)


@LAYOUTS
def test_a_mode_sees_the_operation(heads_first: bool) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    call = Recorded(heads_first)
    with FlopCounterMode(display=False) as counter:
        found = call.gradients(0, 1, 2)
    assert counter.get_total_flops() == 5 * 2 * 2 * 20 * 40 * 64
    assert all(map(bitwise_equal, found, call.expected(0, 1, 2)))


def test_the_short_way_gets_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it returns are the gradients; where it has none, the checked way computes them."""
    asked: list[tuple[Any, ...]] = []

    def short_way(*given: Any) -> Any:
        asked.append(given)
        return None if given[0] is None else (given[0], None, given[0], None)

    call = Recorded(False, with_lse=True)
    monkeypatch.setattr(autograd, "plain_gradients", lambda heads_first: short_way)
    q, k, v = call.leaves
    k.requires_grad_(False)
    o, lse = (x.detach() for x in call.found)
    v = v.detach()[:, :20, :1].expand(q.shape).clone().requires_grad_()  # shaped like d_o
    record: Any = autograd.recorder.__wrapped__(False)
    found, of_rows = record(q, k, v, (o, lse, (None, False, True), True))
    assert found is o and of_rows is lse and o.requires_grad
    d_q, d_v = torch.autograd.grad(found, (q, v), call.d_o, retain_graph=True)
    assert torch.equal(d_q, call.d_o) and torch.equal(d_v, call.d_o)
    ((d_o, d_lse, saved, options, wanted),) = asked
    assert torch.equal(d_o, call.d_o) and d_lse is None and options == (None, False, True)
    assert all(map(torch.equal, saved, (q, k, v, o, lse))) and len(saved) == 5
    assert wanted[:3] == (True, False, True)
    with pytest.raises(TypeError, match="expected 2 or 3 positional arguments, got 1"):
        found.grad_fn.apply()


def test_what_it_has_none_of_the_checked_way_computes() -> None:
    call = Recorded(True, with_lse=True)
    found = torch.autograd.grad(call.found[1], call.leaves[:2], call.d_lse)
    zeros = torch.zeros_like(call.other[0])
    expected = torch.autograd.grad(call.other, call.same[:2], (zeros, call.d_lse))
    assert all(map(bitwise_equal, found, (turned(x, True) for x in expected)))
