"""The operations `flash_attention::fwd` and `flash_attention::bwd` themselves: what PyTorch asks of
an operation, of every layout, and calls of subclasses that see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import flash_attention
from tests.docs.recorded_cases import Wrapper

from .ways import Qkv

FWD: Any = torch.ops.flash_attention.fwd.default
BWD: Any = torch.ops.flash_attention.bwd.default
PASSED = {
    "test_schema": "SUCCESS",
    "test_autograd_registration": "SUCCESS",
    "test_faketensor": "SUCCESS",
    "test_aot_dispatch_dynamic": "SUCCESS",
}


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float16)


def _contiguous() -> Qkv:
    return _draw(2, 24, 4, 64), _draw(2, 40, 2, 64), _draw(2, 40, 2, 64)


def _heads_first() -> Qkv:
    q, k, v = (_draw(2, 2, 24, 64).transpose(1, 2) for _ in range(3))
    return q, k, v


def _packed() -> Qkv:
    q, k, v = _draw(2, 24, 3, 2, 64).unbind(2)
    return q, k, v


def _misaligned() -> Qkv:
    q, k, v = (_draw(2 * 2 * 24 * 64 + 1)[1:].view(2, 2, 24, 64).transpose(1, 2) for _ in range(3))
    return q, k, v


def _strided_last() -> Qkv:
    q, k, v = (_draw(2, 2, 64, 24).permute(0, 3, 1, 2) for _ in range(3))
    return q, k, v


def _odd_strides() -> Qkv:
    q, k, v = (_draw(2, 2, 24, 65)[..., :64].transpose(1, 2) for _ in range(3))
    return q, k, v


def _filled_up() -> Qkv:
    """Of heads that no kernel reads as they are, and values in another order."""
    return _draw(2, 24, 4, 36), _draw(2, 40, 2, 36), _draw(2, 2, 40, 20).transpose(1, 2)


def _narrow_values() -> Qkv:
    """With the heads first, whose order the output takes over."""
    q, k = (_draw(2, 2, 24, 80).transpose(1, 2) for _ in range(2))
    return q, k, _draw(2, 24, 2, 40)


def _expanded() -> Qkv:
    return _draw(1, 24, 2, 64).expand(2, -1, -1, -1), _draw(2, 24, 2, 64), _draw(2, 24, 2, 64)


LAYOUTS: Mapping[str, Callable[[], Qkv]] = {
    "contiguous": _contiguous, "heads first": _heads_first, "packed": _packed,
    "misaligned": _misaligned, "strided last": _strided_last, "odd strides": _odd_strides,
    "expanded": _expanded, "filled up": _filled_up, "narrow values": _narrow_values,
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_of_the_forward_pass(layout: str) -> None:
    """Of its gradients as well, through aot_dispatch."""
    leaves = tuple(x.detach().requires_grad_() for x in LAYOUTS[layout]())
    options = {"causal": True, "softmax_scale": -0.3}
    assert torch.library.opcheck(FWD, leaves, options) == PASSED


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_of_the_backward_pass(layout: str) -> None:
    qkv = LAYOUTS[layout]()
    o, lse = FWD(*qkv)
    d_lse, wanted = (None, 7) if layout == "contiguous" else (torch.randn_like(lse), 5)
    arguments = torch.randn_like(o), d_lse, *qkv, o, lse, None, False, False, wanted
    assert torch.library.opcheck(BWD, arguments) == PASSED


@pytest.mark.parametrize("scale", [None, 0.3, -0.3, 0.0])
def test_every_scale_gives_the_gradients_of_a_plain_call(scale: float | None) -> None:
    leaves = [x.requires_grad_() for x in _contiguous()]
    function: Any = flash_attention.flash_attn_func
    o = function(*leaves, softmax_scale=scale)
    found, _ = FWD(*leaves, scale)
    assert torch.equal(o, found)
    outer = torch.randn_like(o)
    expected = torch.autograd.grad(o, leaves, outer)
    for gradient, like in zip(torch.autograd.grad(found, leaves, outer), expected, strict=True):
        assert torch.equal(gradient, like)


def test_a_subclass_sees_the_operation() -> None:
    seen = []

    class Watcher(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, *call: Any, **_: Any) -> Any:
            seen.append(call[0])
            return torch.zeros(1), torch.zeros(1)

    q, k, v = _contiguous()
    assert torch.equal(flash_attention.flash_attn_func(Watcher(q), k, v), torch.zeros(1))  # type: ignore[arg-type]
    assert seen == [FWD]


def test_what_is_refused_is_refused_without_data() -> None:
    """With the words of a plain call, when a graph is made and not when it is run."""
    q, k, v = _contiguous()
    mode = FakeTensorMode()
    for wrong, words in (
        ((q.float(), k.float(), v.float()), "dtype torch.float32 is not supported"),
        ((q, k[:1], v[:1]), "k has batch size 1, but q has 2"),
        ((q, k, v[:, :8]), "they must be equal"),
        ((q[:, :, :3], k, v), "q has 3 heads and k 2"),
    ):
        whole = [x.clone() for x in wrong]  # PyTorch 2.4 loses fake tensors of views
        for tensors in (wrong, [mode.from_tensor(x) for x in whole]):
            with pytest.raises(ValueError, match=words):
                flash_attention.flash_attn_func(*tensors)
