"""`flash_attn_func` in the emulator, recorded, transformed and watched: the bits of a plain call,
or a refusal by name. docs/support.md lists the ways."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction
from torch.utils import flop_counter

from tests.docs.markdown import SUPPORT, table
from tests.docs.test_support import check_refused

from .ways import REFUSED, RIGHT, RIGHT_GRADIENTS, Qkv, Way, attend, eager_gradients

SHARDED = "`DTensor`: each device computes its share of the batch or the heads"  # test_sharding.py
OURS = (torch.ops.flash_attention.fwd, torch.ops.flash_attention.bwd)
ROWS = {row[0]: row[1:] for row in table(SUPPORT, "recorded-func")}


def each(ways: dict[str, tuple[Callable[..., object], ...]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "way",
        [pytest.param(w, id=f"{n} {i}") for n, some in ways.items() for i, w in enumerate(some)],
    )


@pytest.fixture(params=[(64, 64), (36, 20)], ids=["d 64", "d 36 and 20"])
def qkv(seed: int, request: pytest.FixtureRequest) -> Qkv:
    """Of heads that kernels read as they are, and of ones that are filled up."""
    torch.manual_seed(seed)
    d, d_v = request.param
    q, k, v = (
        torch.randn((2, 72, *heads), dtype=torch.float16) for heads in ((4, d), (2, d), (2, d_v))
    )
    return q, k, v


def test_the_page_lists_them() -> None:
    right = {name for name, row in ROWS.items() if row[0] == "right"}
    assert right == {*RIGHT, *RIGHT_GRADIENTS, SHARDED}
    assert {*ROWS} - right == {*REFUSED}


@each(dict(RIGHT))
def test_the_output_is_that_of_a_plain_call(way: Way, qkv: Qkv) -> None:
    assert torch.equal(way(*qkv), attend(*qkv))


@each(dict(RIGHT_GRADIENTS))
def test_the_gradients_are_those_of_a_plain_call(way: Callable[..., Qkv], qkv: Qkv) -> None:
    for found, expected in zip(way(*qkv), eager_gradients(*qkv), strict=True):
        assert torch.equal(found, expected)


def test_a_jacobian_has_the_rows_that_gradients_are(qkv: Qkv) -> None:
    q, k, v = (x[:1, :8, :2] for x in qkv)

    def some(x: Tensor) -> Tensor:
        return attend(x, k, v)[0, 3, 0, :2]

    rows = torch.func.jacrev(some)(q)
    for i, row in enumerate(rows):
        assert torch.equal(row, torch.func.grad(lambda x, i=i: some(x)[i])(q))


def test_gradients_where_functions_refuse_one_level(
    qkv: Qkv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.autograd.Function does since PyTorch 2.15, in what its `apply` ends in."""

    def apply(cls: Any, *arguments: object) -> object:
        if torch._C._are_functorch_transforms_active() and issubclass(cls, torch.autograd.Function):
            raise RuntimeError("it must override the setup_context staticmethod")
        return super(_SingleLevelFunction, cls).apply(*arguments)

    monkeypatch.setattr(_SingleLevelFunction, "apply", classmethod(apply))
    for way in RIGHT_GRADIENTS["`torch.func.grad`, `vjp`, `jacrev`, also inside and around `vmap`"]:
        for found, expected in zip(way(*qkv), eager_gradients(*qkv), strict=True):
            assert torch.equal(found, expected)


def test_a_counter_that_files_formulas_by_overload(
    qkv: Qkv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch 2.4 does, which refuses a second one and looks them up by the operation's name."""
    shapes_of: Any = flop_counter.shape_wrapper
    registry = {
        op: formula
        for op, formula in flop_counter.flop_registry.items()
        if getattr(op, "overloadpacket", op) not in OURS
    }

    def register_flop_formula(packet: Any) -> Callable[[Any], None]:
        def register(formula: Any) -> None:
            assert packet.default not in registry, "duplicate registrations"
            registry[packet.default] = shapes_of(formula)

        return register

    monkeypatch.setattr(flop_counter, "flop_registry", registry)
    monkeypatch.setattr(flop_counter, "register_flop_formula", register_flop_formula)
    counts = "`FlopCounterMode`: as PyTorch's own attention, whatever the mask"
    for way in (*RIGHT[counts], *RIGHT[counts]):
        way(*qkv)
    for gradients in RIGHT_GRADIENTS[counts]:
        gradients(*qkv)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused(case: str, qkv: Qkv) -> None:
    for provoke in REFUSED[case]:
        check_refused(ROWS[case], partial(provoke, *qkv))
