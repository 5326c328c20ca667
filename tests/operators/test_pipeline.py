"""Operators one after the other, and what their calls leave behind, in the emulator."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from tests.operators import pipeline


def test_every_stage_is_right_and_so_are_all(seed: int) -> None:
    given = pipeline.inputs(48, seed)
    pipeline.check(given, pipeline.run(given))


@pytest.mark.parametrize("stage", ["product", "epilogue"])
def test_a_wrong_stage_is_named(stage: str, seed: int) -> None:
    given = pipeline.inputs(16, seed)
    outputs = pipeline.run(given)
    outputs[stage][3, 5] += 0.25
    with pytest.raises(AssertionError, match=stage):
        pipeline.check(given, outputs)


CALLS: dict[str, Any] = {
    "gelu": lambda x: operators.gelu(x),
    "softmax": lambda x: operators.softmax(x),
    "rms_norm": lambda x: operators.rms_norm(x, residual=x)[0],
    "cross_entropy": lambda x: operators.cross_entropy(x, x[0].long()),
    "matmul": lambda x: operators.matmul(x, x, activation="silu", residual=x),
    "gradient": lambda x: torch.autograd.grad(operators.rms_norm(x.requires_grad_()).sum(), x)[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_keep_no_tensor(name: str) -> None:
    keeps_none(CALLS[name])


def test_a_call_that_keeps_one_is_found() -> None:
    kept = []
    with pytest.raises(AssertionError):
        keeps_none(lambda x: kept.append(operators.gelu(x)))


def keeps_none(function: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    """Neither what it is given, nor what it returns, nor anything of its own."""

    def call() -> weakref.ref[torch.Tensor]:
        x = torch.ones(16, 16)
        result = function(x)
        return weakref.ref(x if result is None else result)

    call()
    before = tensors()
    results = [call() for _ in range(4)]
    assert tensors() == before
    assert [result() for result in results] == [None] * 4


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
