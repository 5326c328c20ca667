"""The tool that compares random calls with fp64, on the CPU: it passes, and tells what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

import flash_attention
from tests.gpu import random_calls
from tests.serving.packed import Packed


def test_all_kinds(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """One problem of each."""
    code = random_calls.main(["0", "--device", "cpu", "--seed", str(seed)])
    out = capsys.readouterr().out
    assert code == 0, out
    assert all(f"{kind} 1" in out for kind in random_calls.KINDS.of)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("dense", "flash_attn_func"),
        ("packed", "flash_attn_varlen_func"),
        ("cached", "flash_attn_with_kvcache"),
        ("latent", "flash_attn_with_kvcache"),
    ],
)
def test_outputs_that_are_a_hundredth_too_large(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attend: Any = getattr(flash_attention, name)

    def wrong(*tensors: Any, **options: Any) -> Any:
        o, *rest = attend(*tensors, **options)
        return (o * 1.01, *rest)

    monkeypatch.setattr(flash_attention, name, wrong)
    arguments = ["0", "--device", "cpu", "--seed", "7", "--number", "2", "--kinds", kind]
    assert random_calls.main(arguments) == 1
    out = capsys.readouterr().out
    assert f"{kind} 2 of seed 7: " in out and "of the allowed error" in out
    assert f"{kind} 1; 1 failed" in out


def test_gradients_that_are_a_tenth_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Packed.call

    def wrong(self: Any, **options: Any) -> Any:
        found, d_sinks = call(self, **options)
        return {name: x * 1.1 for name, x in found.items()}, d_sinks

    monkeypatch.setattr(Packed, "call", wrong)
    _, problem = random_calls.KINDS.outcome("gradients", 7, 2, "cpu")
    assert "of the allowed error" in problem


def test_a_seed_and_a_number_draw_the_same_again() -> None:
    outcomes = {random_calls.KINDS.outcome("dense", 3, 5, "cpu") for _ in range(2)}
    assert len(outcomes) == 1
    assert random_calls.KINDS.outcome("dense", 3, 6, "cpu") not in outcomes


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        random_calls.main(["0", "--kinds", "dense,sparse"])
    assert left.value.code == 2 and "no kind sparse: there are dense" in capsys.readouterr().err
