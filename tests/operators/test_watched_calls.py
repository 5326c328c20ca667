"""Calls that PyTorch must see go through the function, whatever was remembered before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.remembered import remembered
from tests.operators.stand_in_machine import StandInMachine

Call = Callable[..., Any]
X, Y = torch.randn(8, 24).half(), torch.randn(8, 24).half()


class OwnClass(torch.Tensor):
    pass


def in_dual_level(call: Call) -> None:
    with forward_ad.dual_level():
        call(forward_ad.make_dual(X, Y))  # type: ignore[no-untyped-call]


def under_fake_tensors(call: Call) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        call(X)


WATCHED: dict[str, Call] = {
    "gradient": lambda call: call(X.clone().requires_grad_()),
    "class": lambda call: call(X.as_subclass(OwnClass)),
    "vmap": lambda call: torch.func.vmap(call)(X.expand(2, 8, 24)),
    "make_fx": lambda call: make_fx(call)(X),
    "make_fx before dispatch": lambda call: make_fx(call, pre_dispatch=True)(X),
    "trace": lambda call: torch.jit.trace(  # type: ignore[no-untyped-call]
        call, X, check_trace=False
    ),
    "fake tensors": under_fake_tensors,
    "dual numbers": in_dual_level,
    "compiled": lambda call: torch.compile(call, backend="eager")(X),
}


@pytest.mark.parametrize("what", WATCHED)
def test_what_pytorch_must_see_goes_through_the_function(what: str) -> None:
    """What the function does then is its own affair."""
    machine, seen = StandInMachine(), list[bool]()
    relu: Call = operators.relu.__wrapped__  # type: ignore[attr-defined]

    def function(x: torch.Tensor) -> torch.Tensor:
        if plain:
            return relu(x)  # type: ignore[no-any-return]
        seen.append(True)
        return x * 2

    plain = True
    call = remembered(function, machine)
    call(X)
    call(X)
    assert len(machine.started) == 1
    plain = False
    WATCHED[what](call)
    assert seen and len(machine.started) == 1
