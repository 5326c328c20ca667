"""The tool that compares random calls of operators with fp64, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

from flash_attention import operators
from tests.gpu import random_operators


@pytest.mark.slow
def test_all_kinds(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """One problem of each."""
    code = random_operators.main(["0", "--device", "cpu", "--seed", str(seed)])
    out = capsys.readouterr().out
    assert code == 0, out
    assert all(f"{kind} 1" in out for kind in random_operators.KINDS.of)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("softmax", ("softmax", "log_softmax")),
        pytest.param("matmul", ("matmul",), marks=pytest.mark.slow),
        pytest.param("conv2d", ("conv2d",), marks=pytest.mark.slow),
        pytest.param("norms", ("layer_norm", "rms_norm"), marks=pytest.mark.slow),
    ],
)
def test_results_that_are_a_hundredth_too_large(
    kind: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        call: Any = getattr(operators, name)

        def wrong(*tensors: Any, _call: Any = call, **options: Any) -> Any:
            y = _call(*tensors, **options)
            return (y[0] * 1.01, *y[1:]) if isinstance(y, tuple) else y * 1.01

        monkeypatch.setattr(operators, name, wrong)
    _, problem = random_operators.KINDS.outcome(kind, 7, 2, "cpu")
    assert problem.startswith(f"{kind} 2 of seed 7: ") and "of the allowed error" in problem
