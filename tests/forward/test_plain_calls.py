"""The short way to the launch is closed to every call that something has to see: what the extension
asks (tests/build/test_extension.py) says so. The way itself needs a GPU: tests/gpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from flash_attention.checks.eager import QUIET_FUNCTIONS, QUIET_VARIABLES


def is_quiet() -> bool:
    return not any(function() for function in QUIET_FUNCTIONS) and all(
        getattr(module, name) == value for module, name, value in QUIET_VARIABLES
    )


def counted(look: Callable[[Any], Any], x: torch.Tensor) -> None:
    with FlopCounterMode(display=False):
        look(x)


def traced(look: Callable[[Any], Any], x: torch.Tensor) -> None:
    torch.jit.trace(look, (x,), check_trace=False)  # type: ignore[no-untyped-call]


def dual(look: Callable[[Any], Any], x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        look(x)


WAYS: dict[str, Callable[[Callable[[Any], Any], torch.Tensor], object]] = {
    "jit.trace": traced,
    "make_fx": lambda look, x: make_fx(look)(x),
    "make_fx, pre_dispatch": lambda look, x: make_fx(look, pre_dispatch=True)(x),
    "vmap": lambda look, x: torch.func.vmap(look)(x),
    "a mode": counted,
    "forward mode": dual,
}


def looked(way: str) -> list[bool]:
    """What a function that is called in this way finds, each time."""
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_quiet())
        return x + 1

    WAYS[way](look, torch.zeros(2, 3))
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_is_seen_is_not_quiet(way: str) -> None:
    assert is_quiet()
    seen = looked(way)
    assert seen and not any(seen)
    assert is_quiet()


@pytest.mark.parametrize(
    ("left_out", "way"),
    [
        ("_is_tracing", "jit.trace"),
        ("_len_torch_dispatch_stack", "a mode"),
        ("_are_functorch_transforms_active", "vmap"),
        ("_CURRENT_MAKE_FX_TRACER", "make_fx, pre_dispatch"),
        ("_current_level", "forward mode"),
    ],
)
def test_each_is_needed(left_out: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the way would not be noticed."""
    functions = [f for f in QUIET_FUNCTIONS if f.__name__ != left_out]
    variables = [v for v in QUIET_VARIABLES if v[1] != left_out]
    assert len(functions) + len(variables) == len(QUIET_FUNCTIONS) + len(QUIET_VARIABLES) - 1
    monkeypatch.setattr(f"{__name__}.QUIET_FUNCTIONS", functions)
    monkeypatch.setattr(f"{__name__}.QUIET_VARIABLES", variables)
    assert any(looked(way))
