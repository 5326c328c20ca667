"""What a repeated call makes: results, and one piece of memory for all that nobody gets to see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.triton_kit.launched import Launched
from flash_attention.triton_kit.repeatable import repeatable
from tests.operators.stand_in_machine import StandInMachine
from tests.operators.test_remembered import drawn, setup

ROWS = 300
ROW_BYTES = 4 * ROWS


def test_pieces_of_the_memory_lie_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of cross entropy: losses, log-sum-exps and divisor."""
    call, counted, machine = setup("cross_entropy")
    logits, target = drawn(ROWS, 40), torch.arange(ROWS) % 40
    made: list[torch.Tensor] = []
    empty = machine.empty

    def kept(*args: Any) -> torch.Tensor:
        made.append(empty(*args))
        return made[-1]

    monkeypatch.setattr(type(machine), "empty", property(lambda self: kept))
    call(logits, target)
    result = call(logits, target)
    assert counted.calls == 1 and len(made) == 2
    (piece,) = (x for x in made if x is not result)
    ((_, _, forward),) = machine.started
    begin, end = piece.data_ptr(), piece.data_ptr() + piece.nbytes
    losses, lse, divisor = forward[2], forward[3], forward[5]
    assert forward[4] == result.data_ptr() and forward[6] not in forward[:6]
    places = sorted([(losses, ROW_BYTES), (lse, ROW_BYTES), (divisor, 4)])
    for (at, n_bytes), following in zip(places, [at for at, _ in places[1:]] + [end], strict=True):
        assert begin <= at and at % 16 == 0 and at + n_bytes <= following


def test_what_launches_leave_zero_is_zero_at_every_launch() -> None:
    machine, x = StandInMachine(), drawn(6, 40)
    out, words = torch.empty(6, 40), torch.zeros(33, dtype=torch.int64)
    kernel = SimpleNamespace()
    launch = Launched(kernel, (1, 1, 1), (x, out, words), (1, 2), (2,))
    again = repeatable(machine, [x], [launch, launch], out)
    assert again is not None and isinstance(again([x], [x.data_ptr()]), torch.Tensor)
    (_, _, first), (_, _, second) = machine.started
    assert first == second and first[2] not in (first[0], first[1], words.data_ptr())
    assert repeatable(machine, [x, words], [launch], out) is None
    assert repeatable(machine, [x], [launch], words) is None


def test_a_norm_s_training_pass_is_repeated() -> None:
    """It returns an empty tensor for the sum that it does not have."""
    call, counted, machine = setup("forward")
    x, weight = drawn(6, 40), drawn(40)
    first = call(x, weight, None, None, 1e-5, True)
    again = call(x, weight, None, None, 1e-5, True)
    assert counted.calls == 1 and len(machine.started) == 1
    for got, wanted in zip(again, first, strict=True):
        assert (got.shape, got.stride(), got.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
    assert not again[1].numel()


@pytest.mark.parametrize("layer", [False, True])
def test_statistics_are_made_for_gradients_only(layer: bool) -> None:
    name = "layer_norm" if layer else "rms_norm"
    call, _, machine = setup(name)
    x, weight = drawn(6, 40), drawn(40)
    call(x, weight)
    out = call(x, weight)
    (_, _, arguments) = machine.started[-1]
    known = {x.data_ptr(), weight.data_ptr(), out.data_ptr()}
    assert set(arguments[:8]) <= known


def test_a_number_that_equals_nothing_is_known_again() -> None:
    call, counted, machine = setup("add_scalar")
    x = drawn(50)
    for _ in range(3):
        call(x, float("nan"))
    assert counted.calls == 1 and len(machine.started) == 2
