"""Calls whose gradients autograd wants, repeated without their checks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.launching import differentiable
from flash_attention.operators.remembered import remembered
from tests.operators.stand_in_machine import Counted, StandInMachine

Two = tuple[torch.Tensor, torch.Tensor]


def forward(x: torch.Tensor, y: torch.Tensor, by: float) -> Two:
    """A product, and what no gradient flows from."""
    return x * y * by, x.detach().abs()


def keep(ctx: Any, inputs: tuple[Any, ...], output: Two) -> None:
    *tensors, ctx.by = inputs
    ctx.save_for_backward(*tensors)
    ctx.mark_non_differentiable(output[1])


def gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
    x, y = ctx.saved_tensors
    return grad * y * ctx.by, grad * x * ctx.by, None


class AsOneOperator:
    """In place of PyTorch's operator, which gets what somebody else has to see."""

    def register_autograd(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, x: torch.Tensor, y: torch.Tensor, by: float) -> Two:
        return x * y * by, x


_product: Any = differentiable(AsOneOperator(), forward, keep, gradient)


def product(x: torch.Tensor, y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return _product(x, y, by)[0]  # type: ignore[no-any-return]


class InPython(StandInMachine):
    finds_in_c = False


def counted(
    function: Callable[..., Any] = product, machine: type[StandInMachine] = StandInMachine
) -> tuple[Counted, Callable[..., Any]]:
    made = Counted(function)
    return made, remembered(made, machine())


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (4, 8), requires_grad=True)


@pytest.mark.parametrize("machine", [StandInMachine, InPython])
def test_a_like_call_goes_to_autograd_at_once(machine: type[StandInMachine]) -> None:
    function, call = counted(machine=machine)
    for _ in range(3):
        x, y = leaf(), leaf()
        out = call(x, y)
        torch.testing.assert_close(out, x * y * 2)
        gx, gy = torch.autograd.grad(out, (x, y), 3 * torch.ones(4, 8))
        torch.testing.assert_close(gx, 6 * y)
        torch.testing.assert_close(gy, 6 * x)
    assert function.calls == 1
    same = leaf()
    for _ in range(2):  # one tensor twice is another call
        (both,) = torch.autograd.grad(call(same, same).sum(), same)
        torch.testing.assert_close(both, 4 * same)
    assert function.calls == 2


def other_calls() -> dict[str, tuple[torch.Tensor, torch.Tensor, float]]:
    x, y = leaf(), leaf()
    return {
        "another number": (x, y, 3.0),
        "another shape": (leaf(2, 8), leaf(2, 8), 2.0),
        "other strides": (leaf(8, 4).T, leaf(8, 4).T, 2.0),
        "another type": (x.double(), y.double(), 2.0),
        "no gradient of one": (x, y.detach(), 2.0),
        "no gradient": (x.detach(), y.detach(), 2.0),
    }


@pytest.mark.parametrize("what", other_calls())
def test_any_other_call_is_checked(what: str) -> None:
    function, call = counted()
    call(leaf(), leaf(), 2.0)
    x, y, by = other_calls()[what]
    torch.testing.assert_close(call(x, y, by), x * y * by)
    assert function.calls == 2


def test_where_autograd_records_nothing_the_call_is_checked() -> None:
    function, call = counted()
    x, y = leaf(), leaf()
    call(x, y)
    with torch.no_grad():
        assert not call(x, y).requires_grad
    assert function.calls == 2


def test_transformations_get_the_call() -> None:
    """Their tensors are never those that autograd alone sees."""
    function, call = counted()
    x, y = leaf(), leaf()
    call(x, y)
    found = torch.func.grad(lambda x: call(x, y).sum())(x)
    torch.testing.assert_close(found, 2 * y)
    torch.testing.assert_close(torch.func.vmap(call)(x, y), x * y * 2)
    assert function.calls == 3


MORE: dict[str, Callable[..., Any]] = {
    "a result that was changed": lambda x, y: product(x, y) + 1,
    "an operand that was changed": lambda x, y: product(x + 0, y),
    "two functions": lambda x, y: (product(x, y), product(y, x)),
    "none of ours": lambda x, y: x * y,
    "a given tensor": lambda x, y: (product(x, y), x),
}


@pytest.mark.parametrize("what", MORE)
def test_a_call_that_is_more_than_one_function_is_not_repeated(what: str) -> None:
    function, call = counted(MORE[what])
    for _ in range(3):
        x, y = leaf(), leaf()
        torch.testing.assert_close(call(x, y), MORE[what](x, y))
    assert function.calls == 3


def test_results_are_those_that_the_call_returned() -> None:
    function, call = counted(lambda x, y: _product(y, x, 2.0)[::-1])
    for _ in range(2):
        x, y = leaf(), leaf()
        size, out = call(x, y)
        torch.testing.assert_close(size, y.abs().detach())
        torch.testing.assert_close(torch.autograd.grad(out.sum(), y)[0], 2 * x)
        assert not size.requires_grad
    assert function.calls == 1


def test_a_tensor_without_its_memory_is_for_the_checks() -> None:
    def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage().nbytes() < x.nbytes:
            raise ValueError("x lacks memory")
        return product(x, y)

    _, call = counted(checked)
    call(leaf(), leaf())
    x, y = leaf(), leaf()
    x.untyped_storage().resize_(x.nbytes - 1)
    with pytest.raises(ValueError, match="x lacks memory"):
        call(x, y)


def test_no_tensor_is_kept() -> None:
    _, call = counted()
    x, y = leaf(), leaf()
    out = call(x, y)
    seen = [weakref.ref(tensor) for tensor in (x, y, out)]
    del x, y, out
    gc.collect()
    assert not any(tensor() is not None for tensor in seen)
