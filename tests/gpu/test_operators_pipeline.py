"""Operators one after the other on the GPU, and the memory that a thousand calls leave behind."""

from __future__ import annotations

import time

import pytest
import torch

pytest.importorskip("triton")

from tests.operators import pipeline
from tests.operators.test_pipeline import CALLS

pytestmark = pytest.mark.gpu
N_CALLS = 1000


def allocated(expected: int | None = None) -> int:
    """Bytes of tensors. PyTorch's backward thread lets go of its last ones after the caller has
    gone on: a moment for it to get to what is expected."""
    torch.cuda.synchronize()
    for _ in range(100):
        if torch.cuda.memory_allocated() == expected:
            break
        time.sleep(0.01)
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize("length", [64, 1000])
def test_every_stage_is_right_and_so_are_all(length: int, seed: int) -> None:
    given = pipeline.inputs(length, seed, "cuda")
    outputs = pipeline.run(given)
    pipeline.check(given, outputs)
    again = pipeline.run(given)
    assert all(torch.equal(again[name], output) for name, output in outputs.items())


@pytest.mark.parametrize("name", CALLS)
def test_a_thousand_calls_keep_no_byte(name: str) -> None:
    x = torch.ones(16, 16, device="cuda")
    for _ in range(3):  # the first ones compile, and are remembered
        CALLS[name](x)
    before = allocated()
    for _ in range(N_CALLS):
        CALLS[name](x)
    assert allocated(before) == before


def test_a_pipeline_run_again_and_again_keeps_no_byte(seed: int) -> None:
    given = pipeline.inputs(64, seed, "cuda")
    pipeline.run(given)
    before = allocated()
    for _ in range(N_CALLS // len(pipeline.STAGES)):
        pipeline.run(given)
    assert allocated(before) == before
