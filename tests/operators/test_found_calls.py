"""Repeated calls, as they are found in C++ by what they were called with."""

from __future__ import annotations

from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.library import load_library
from tests.operators.stand_in_machine import EXCHANGE_API

WATCHED: ContextVar[Any] = ContextVar("watched", default=None)
X = torch.zeros(64)


class Calls:
    """What finds calls in C++, with one of it: `like` and `launches` are noted."""

    def __init__(self) -> None:
        self.now = SimpleNamespace(busy=None, alike=True, grad=False, _current_level=-1)
        self.given: list[Any] = []
        self.alike: list[int] = []  # how many tensors were asked about
        kinds = [type(None), bool, int, float, str]
        self.made = load_library().RememberedCalls(
            [lambda: self.now.busy, WATCHED], self.now, lambda: self.now.grad, [torch.Tensor],
            kinds, EXCHANGE_API,
        )  # fmt: skip

    def remember(self, *given: Any, **named: Any) -> None:
        def launches(tensors: list[torch.Tensor], at: list[int]) -> str:
            self.given.append((tensors, at))
            return "done"

        def like(*tensors: torch.Tensor) -> bool:
            self.alike.append(len(tensors))
            return bool(self.now.alike)

        self.made.remember(given, named, like, launches)

    def again(self, *given: Any, **named: Any) -> Any:
        return self.made.again(given, named)


Y = torch.zeros(64)
FOUND = (X, 2, 0.5, "silu", None, Y), {"on": True, "by": 0.0}
LIKE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "another number": ((X, 3, 0.5, "silu", None, Y), FOUND[1]),
    "another type": ((X, 2.0, 0.5, "silu", None, Y), FOUND[1]),
    "another word": ((X, 2, 0.5, "relu", None, Y), FOUND[1]),
    "another sign of zero": (FOUND[0], {"on": True, "by": -0.0}),
    "a number for a switch": (FOUND[0], {"on": 1, "by": 0.0}),
    "another name": (FOUND[0], {"on": True, "but": 0.0}),
    "another order": (FOUND[0], {"by": 0.0, "on": True}),
    "fewer": ((X, 2, 0.5, "silu", None, Y), {"on": True}),
    "a list": ((X, [2], 0.5, "silu", None, Y), FOUND[1]),
    "a parameter": ((torch.nn.Parameter(X), *FOUND[0][1:]), FOUND[1]),
    "no tensor": ((None, 2, 0.5, "silu", None, None), FOUND[1]),
    "one tensor twice": ((X, 2, 0.5, "silu", None, X), FOUND[1]),
    "two tensors in one place": ((X, 2, 0.5, "silu", None, X.view(64)), FOUND[1]),
    "misaligned": ((torch.zeros(65)[1:], *FOUND[0][1:]), FOUND[1]),
    "nothing": ((), {}),
}


def test_a_call_is_found_by_what_it_was_called_with() -> None:
    calls = Calls()
    assert calls.again(*FOUND[0], **FOUND[1]) is None
    calls.remember(*LIKE["another number"][0], **FOUND[1])
    calls.remember(*FOUND[0], **FOUND[1])
    x = torch.ones(64)
    given = (x, 2, 1 / 2, "".join(["si", "lu"]), None, Y)
    assert calls.again(*given, **FOUND[1]) == "done"
    ((tensors, at),) = calls.given
    assert tensors[0] is x and tensors[1] is Y and at == [x.data_ptr(), Y.data_ptr()]


@pytest.mark.parametrize("what", ["one tensor twice", "two tensors in one place", "misaligned"])
def test_a_call_is_found_by_where_its_tensors_are(what: str) -> None:
    calls = Calls()
    for others in LIKE:
        if others != what:
            calls.remember(*LIKE[others][0], **LIKE[others][1])
    calls.remember(*FOUND[0], **FOUND[1])
    (x, *_, y), named = LIKE[what]
    assert calls.again(x, 2, 0.5, "silu", None, y, **named) is None
    calls.remember(*LIKE[what][0], **named)
    assert calls.again(x, 2, 0.5, "silu", None, y, **named) == "done"
    assert calls.alike[-1] == (1 if y is x else 2)


@pytest.mark.parametrize("what", LIKE)
def test_other_calls_are_not_found(what: str) -> None:
    calls = Calls()
    calls.remember(*FOUND[0], **FOUND[1])
    positional, named = LIKE[what]
    assert calls.again(*positional, **named) is None and not calls.given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("busy", True), ("busy", []), ("busy", 1), ("alike", False), ("grad", True),
        ("_current_level", 0),
    ],
)  # fmt: skip
def test_calls_that_somebody_has_to_see_are_not_found(name: str, value: Any) -> None:
    calls = Calls()
    calls.remember(X)
    before = getattr(calls.now, name)
    setattr(calls.now, name, value)
    assert calls.again(X) is None
    setattr(calls.now, name, before)
    assert calls.again(X) == "done"


def test_a_variable_of_the_context_keeps_calls_from_being_found() -> None:
    calls = Calls()
    calls.remember(X)
    token = WATCHED.set([])
    assert calls.again(X) is None
    WATCHED.reset(token)
    assert calls.again(X) == "done"


def test_only_errors_of_launches_pass() -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("it fails")

    calls = Calls()
    calls.made.remember((X,), {}, fails, fails)
    assert calls.again(X) is None
    calls.made.remember((Y, 1), {}, lambda *_: True, fails)
    with pytest.raises(RuntimeError, match="it fails"):
        calls.again(Y, 1)
    calls.remember(X, [1])
    assert len(calls.made) == 2 and calls.made.again([X], {}) is None


def test_calls_do_not_fill_the_memory() -> None:
    calls = Calls()
    for i in range(4097):
        calls.remember(X, i)
    assert len(calls.made) == 1 and calls.again(X, 4096) == "done"
