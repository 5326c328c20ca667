"""The tools that compare random calls with fp64, on the CPU: they pass, and tell what is wrong."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import flash_attention
from tests.gpu import random_calls
from tests.serving.packed import Packed

SLOW = pytest.mark.slow


def tool_and_module(name: str) -> tuple[Any, ModuleType]:
    """A tool, and where it finds what it calls."""
    if name == "random_calls":
        return random_calls, flash_attention
    pytest.importorskip("triton")
    from flash_attention import operators
    from tests.gpu import random_operators

    return random_operators, operators


@pytest.mark.parametrize("name", ["random_calls", pytest.param("random_operators", marks=SLOW)])
def test_all_kinds(name: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """One problem of each."""
    tool, _ = tool_and_module(name)
    code = tool.main(["0", "--device", "cpu", "--seed", str(seed)])
    out = capsys.readouterr().out
    assert code == 0, out
    assert all(f"{kind} 1" in out for kind in tool.KINDS.of)


@pytest.mark.parametrize(
    ("name", "kind", "functions"),
    [
        ("random_calls", "dense", ("flash_attn_func",)),
        ("random_calls", "packed", ("flash_attn_varlen_func",)),
        ("random_calls", "cached", ("flash_attn_with_kvcache",)),
        ("random_calls", "latent", ("flash_attn_with_kvcache",)),
        ("random_operators", "softmax", ("softmax", "log_softmax")),
        pytest.param("random_operators", "matmul", ("matmul",), marks=SLOW),
        pytest.param("random_operators", "conv2d", ("conv2d",), marks=SLOW),
        pytest.param("random_operators", "norms", ("layer_norm", "rms_norm"), marks=SLOW),
    ],
)
def test_results_that_are_a_hundredth_too_large(
    name: str, kind: str, functions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tool, module = tool_and_module(name)
    for function in functions:
        call: Any = getattr(module, function)

        def wrong(*tensors: Any, _call: Any = call, **options: Any) -> Any:
            y = _call(*tensors, **options)
            return (y[0] * 1.01, *y[1:]) if isinstance(y, tuple) else y * 1.01

        monkeypatch.setattr(module, function, wrong)
    arguments = ["0", "--device", "cpu", "--seed", "7", "--number", "2", "--kinds", kind]
    assert tool.main(arguments) == 1
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
