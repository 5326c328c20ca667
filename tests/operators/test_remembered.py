"""A repeated call starts what the checked one launched, and nothing else goes past the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.losses import calls as losses
from flash_attention.operators.norms import launches
from flash_attention.operators.remembered import remembered
from flash_attention.triton_kit.launched import noted
from tests.operators.stand_in_machine import Counted, StandInMachine

Call = Callable[..., Any]


def checked(name: str) -> Call:
    """The operator as it is without memory, or the launches of a norm, or of a gradient."""
    rooms = {"forward": launches, "backward": launches, "cross_entropy_backward": losses}
    function: Call = getattr(rooms.get(name, operators), name).__wrapped__
    return function


def setup(name: str) -> tuple[Call, Counted, StandInMachine]:
    """(the operator, remembered for CPU tensors; what counts its checked calls; the machine)."""
    counted, machine = Counted(checked(name)), StandInMachine()
    return remembered(counted, machine), counted, machine


def drawn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


CALLS: dict[str, tuple[str, Call]] = {
    "add": ("add", lambda: ((drawn(6, 40), drawn(6, 40)), {})),
    "add broadcast": ("add", lambda: ((drawn(6, 40), drawn(40)), {})),
    "add strided": ("add", lambda: ((drawn(40, 6).T, drawn(6, 40)), {})),
    "add in place": ("add", lambda: ((x := drawn(50), drawn(50)), {"out": x})),
    "add misaligned": ("add", lambda: ((drawn(51)[1:], drawn(50)), {})),
    "add itself": ("add", lambda: ((x := drawn(50), x), {})),
    "add_scalar": ("add_scalar", lambda: ((drawn(50), 0.25), {})),
    "gelu": ("gelu", lambda: ((drawn(50), "tanh"), {})),
    "gelu by name": ("gelu", lambda: ((drawn(50),), {"approximate": "tanh"})),
    "softmax": ("softmax", lambda: ((drawn(6, 40),), {})),
    "softmax of 3": ("softmax", lambda: ((drawn(2, 3, 40),), {"dim": 2})),
    "layer_norm": ("layer_norm", lambda: (
        (drawn(6, 40), torch.nn.Parameter(drawn(40), requires_grad=False), drawn(40)),
        {"residual": drawn(6, 40)},
    )),
    "rms_norm": ("rms_norm", lambda: ((drawn(6, 40), drawn(40)), {})),
    "norm backward": ("backward", lambda: (
        (drawn(6, 40), drawn(6, 40), None, drawn(40), drawn(40), torch.zeros(6), torch.ones(6),
         True), {},
    )),
    "mean_var": ("mean_var", lambda: ((drawn(6, 40),), {})),
    "cross_entropy": ("cross_entropy", lambda: ((drawn(6, 40), torch.arange(6)), {})),
    "losses backward": ("cross_entropy_backward", lambda: (
        (drawn(6, 40), torch.arange(6), torch.ones(6), torch.tensor(6.0), torch.tensor(1.0),
         -100, 0.0, 0.0, True), {},
    )),
    "matmul": ("matmul", lambda: ((drawn(32, 16), drawn(16, 32)), {})),
    "matmul, all": ("matmul", lambda: (
        (drawn(32, 16), drawn(32, 16).T),
        {"bias": drawn(32), "residual": drawn(32, 32), "activation": "silu"},
    )),
    "matmul, descriptors": (
        "matmul", lambda: ((drawn(32, 16), drawn(16, 32)), {"version": "persistent"})
    ),
    "conv2d": ("conv2d", lambda: (
        (drawn(1, 16, 5, 5).contiguous(memory_format=torch.channels_last),
         drawn(8, 16, 1, 1).contiguous(memory_format=torch.channels_last)), {"stride": [2, 1]},
    )),
    "conv2d, descriptors": ("conv2d", lambda: (
        (drawn(1, 16, 5, 5).contiguous(memory_format=torch.channels_last),
         drawn(8, 16, 1, 1).contiguous(memory_format=torch.channels_last), drawn(8)),
        {"algorithm": "persistent"},
    )),
}  # fmt: skip


def tensors_of(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_starts_what_the_checked_one_launches(name: str) -> None:
    """With the tensors of the second call, of which nothing is kept from the first."""
    operator, draw = CALLS[name]
    call, counted, machine = setup(operator)
    args, named = draw()
    call(*args, **named)
    args, named = draw()
    got = call(*args, **named)
    assert counted.calls == 1, "the second call was checked again"
    with noted() as noticed:
        wanted = checked(operator)(*args, **named)
    known = {v.data_ptr() for v in (*args, *named.values()) if isinstance(v, torch.Tensor)}
    pairs = list(zip(tensors_of(got), tensors_of(wanted), strict=True))
    own = {w.data_ptr(): g.data_ptr() for g, w in pairs if w.data_ptr() not in known}
    for g, w in pairs:
        assert (g.shape, g.stride(), g.dtype) == (w.shape, w.stride(), w.dtype)
    assert len(machine.started) == len(noticed)
    for (_, grid, arguments), launch in zip(machine.started, noticed, strict=True):
        assert grid == launch.grid
        for value, expected in zip(arguments, launch.arguments, strict=True):
            if hasattr(expected, "base"):  # a descriptor made anew, of a tensor of the call's
                assert type(value) is type(expected)
                fields = {name: its for name, its in vars(expected).items() if name != "base"}
                assert {name: its for name, its in vars(value).items() if name != "base"} == fields
                value, expected = value.base.data_ptr(), expected.base
            if not isinstance(expected, torch.Tensor):
                assert value == expected and type(value) is type(expected)
            elif expected.data_ptr() in known:
                assert value == expected.data_ptr()
            else:  # memory of the call's own: another place, always the same
                assert value == own.setdefault(expected.data_ptr(), value)
    assert len(set(own.values())) == len(own) and not known & set(own.values())


@pytest.mark.parametrize("in_c", [True, False])
def test_calls_are_found_with_the_extension_and_without(in_c: bool) -> None:
    """The stand-in has it, and the machines without one look in Python."""
    call, counted, machine = setup("gelu")
    machine.finds_in_c = in_c
    for _ in range(3):
        call(X, "tanh")
    call(X, approximate="tanh")
    call(X[:4], "tanh")
    assert counted.calls == 3 and len(machine.started) == 2
    call(Y, approximate="tanh")
    call(Y[:4], "tanh")
    assert counted.calls == 3 and len(machine.started) == 4


X, Y = drawn(8, 24), drawn(8, 24)
OTHERS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "shape": ("add", (X, Y), (X[:4], Y[:4])),
    "shape, as many": ("add", (X, Y), (X.view(4, 48), Y.view(4, 48))),
    "strides": ("add", (X, Y), (X.view(24, 8).T, Y)),
    "type": ("add", (X, Y), (X.float(), Y.float())),
    "alignment": ("add", (X.view(-1)[:100], Y.view(-1)[:100]),
                  (X.view(-1)[1:101], Y.view(-1)[:100])),
    "two of one place": ("add", (X, Y), (X, X)),
    "one of two places": ("add", (X, X), (X, Y)),
    "parameter": ("relu", (X,), (torch.nn.Parameter(X, requires_grad=False),)),
    "number": ("add_scalar", (X, 0.5), (X, 0.25)),
    "zero's sign": ("add_scalar", (X, 0.0), (X, -0.0)),
    "number's type": ("add_scalar", (X, 1.0), (X, 1)),
    "word": ("gelu", (X, "none"), (X, "tanh")),
    "dimension": ("softmax", (X, -1), (X, 1)),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_another_call_is_checked(what: str) -> None:
    name, first, second = OTHERS[what]
    call, counted, machine = setup(name)
    call(*first)
    call(*second)
    assert counted.calls == 2 and not machine.started
    call(*first)
    call(*second)
    assert counted.calls == 2 and len(machine.started) == 2


def freed() -> torch.Tensor:
    x = X.clone()
    x.untyped_storage().resize_(0)
    return x


def shrunk() -> torch.Tensor:
    x = X.clone()
    x.untyped_storage().resize_(X.nbytes - 2)
    return x


def two_in(buffer: torch.Tensor, apart: int) -> tuple[torch.Tensor, torch.Tensor]:
    return buffer[:160], buffer[apart : apart + 160]


def with_tangent(call: Call) -> object:
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(X, Y))  # type: ignore[no-untyped-call]


REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "freed": (lambda call: call(freed()), ValueError, "x needs 384 bytes of memory"),
    "shrunk": (lambda call: call(shrunk()), ValueError, "x needs 384 bytes of memory"),
    "negated": (lambda call: call(torch._neg_view(X)), ValueError, "x is a negated view"),
    "overlap": (
        lambda call: call(two_in(X.view(-1), 16)[0], out=two_in(X.view(-1), 16)[1]),
        ValueError, "out shares memory with x",
    ),
    "tangent": (with_tangent, ValueError, "x has a forward-mode derivative"),
    "sparse": (lambda call: call(X.float().to_sparse()), ValueError, "x has layout torch.spars"),
    "no tensor": (lambda call: call(None), TypeError, "x is None: expected a torch.Tensor"),
    "unhashable": (lambda call: call(X, config={}), TypeError, "config is a dict: expected a B"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_refused_again(what: str) -> None:
    bad, kind, words = REFUSED[what]
    call, _, machine = setup("relu")
    call(X)
    buffer = torch.zeros(400, dtype=torch.float16)
    x, out = two_in(buffer, 200)
    call(x, out=out)
    for _ in range(2):
        with pytest.raises(kind, match=words):
            bad(call)
    assert not machine.started


def test_a_gradient_is_not_lost() -> None:
    """After a call with the same tensor that needed none."""
    call, counted, machine = setup("relu")
    leaf = X.clone().requires_grad_()
    with torch.no_grad():
        call(leaf)
        call(leaf)
    assert counted.calls == 1 and len(machine.started) == 1
    call(leaf).sum().backward()
    assert leaf.grad is not None and len(machine.started) == 1


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("softmax", (X, 0)),  # copied
        ("relu", (torch.zeros(4, 4, 4, 4, 4)[::2, ::2, ::2, ::2, ::2],)),
        ("add", (torch.zeros(0), torch.zeros(0))),
        ("matmul", (torch.zeros(4, 0), torch.zeros(0, 4))),
    ],
)
def test_a_call_that_is_more_than_its_launches_is_not_repeated(name: str, args: Any) -> None:
    function = getattr(operators, name)
    call, counted, machine = setup(name)
    wanted = function(*args)
    for _ in range(3):
        assert torch.equal(call(*args), wanted)
    assert counted.calls == 3 and not machine.started


def test_another_device_or_a_profiler_gets_the_function() -> None:
    call, counted, machine = setup("relu")
    call(X)
    machine.is_ready = False
    call(X)
    assert counted.calls == 2 and not machine.started


def test_launches_are_noted_inside_of_a_repeated_call() -> None:
    """By those who note them: the call then goes its long way."""
    call, counted, machine = setup("relu")
    call(X)
    with noted() as noticed:
        call(X)
    assert counted.calls == 2 and len(noticed) == 1 and not machine.started
