"""accuracy.py: errors of rows, the table, and which bars ours misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK
from flash_lab.accuracy.cli import main
from flash_lab.accuracy.measure import Case, measure, row_errors
from flash_lab.accuracy.table import misses, pool, read_rows, table
from flash_lab.bench.distributions import DISTRIBUTIONS, draw

EPS = DType.FP16.eps


def row(provider: str, worst: float = 0.9, mean: float = 0.55, **others: Any) -> dict[str, Any]:
    return {"provider": provider, "distribution": "randn", "dtype": "FP16", "d_head": 64,
            "seq_len": 512, "heads": 1, "causal": False, "rows": 512, "worst": worst,
            "quantile": 0.8, "mean": mean} | others  # fmt: skip


def test_errors_of_rows() -> None:
    """In eps of a row's size; NaN is infinite, and a row of zeros counts by its difference."""
    reference = torch.ones((1, 3, 1, 4), dtype=torch.float64)
    o = reference.clone()
    o[0, 1, 0, 2] += 2 * EPS
    found = row_errors(o, reference, EPS)
    assert found.rows == 3
    assert found.worst == pytest.approx(1.0) and found.mean == pytest.approx(1 / 3)
    o[0, 2, 0, 0] = float("nan")
    assert row_errors(o, reference, EPS).worst == float("inf")
    assert row_errors(torch.zeros_like(o), torch.zeros_like(o), EPS).worst == 0


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (row("ours"), []),
        (row("ours", worst=1.2), ["worst", "worst, to cuDNN's"]),
        (row("ours", mean=0.7), ["mean", "mean, to cuDNN's"]),
        (row("ours", worst=float("nan")), ["worst", "worst, to cuDNN's"]),
    ],
)
def test_which_bars_are_missed(ours: dict[str, Any], missed: list[str]) -> None:
    found = pool([ours, row("cudnn")])
    assert [line.removeprefix("randn FP16: ").rsplit(" ", 3)[0] for line in misses(found)] == missed


def test_cases_are_pooled_and_shown() -> None:
    found = pool([row("ours"), row("ours", worst=1.0, mean=0.45, rows=1536), row("cudnn")])
    *_, line = table(found, ["ours", "cudnn", "fa2"])
    assert line == "| randn, fp16 | 1.00 / 0.80 / 0.475 | 0.90 / 0.80 / 0.550 | - | 2048 |"


def test_rows_that_it_did_not_write() -> None:
    assert (
        read_rows([json.dumps({"gpu": "x"}), json.dumps({"provider": "fa4", "error": "no"})]) == []
    )
    with pytest.raises(ValueError, match="no known distribution"):
        read_rows([json.dumps(row("ours") | {"distribution": "other"})])
    with pytest.raises(ValueError, match="without its figures"):
        read_rows([json.dumps(row("ours") | {"worst": "small"})])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_inputs_are_finite_and_of_their_type(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (1, 512, 2, 64)
    for dtype in (torch.float16, torch.bfloat16):
        for tensor in draw(name, shape, shape, dtype, generator):
            assert tensor.shape == shape and tensor.dtype == dtype and tensor.isfinite().all()


def test_a_kernel_that_forgets_a_key_is_found(seed: int) -> None:
    """Attention without the last key, on keys of which one outweighs the others."""
    generator = torch.Generator().manual_seed(seed)
    case = Case("sink", DType.FP16, 64, 256, 1, False)

    def right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / 8, -1)
        return torch.einsum("bhqk,bkhd->bqhd", p, v.double()).half()

    def wrong(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return right(q, k[:, :-1], v[:, :-1])

    found = pool(measure(case, {"cudnn": right, "ours": wrong}, generator))
    assert list(misses(found))
    assert not list(misses(pool(measure(case, {"cudnn": right, "ours": right}, generator))))


def test_the_command_in_the_emulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    arguments = ["--device", "cpu", "--providers", "ours", "--distributions", "peaked,sink",
                 "--dtypes", "fp16", "--d_heads", "96", "--seq_lens", "192", "--mask", "full",
                 "--rows", "192", "--out", str(out)]  # fmt: skip
    assert main(arguments) == EXIT_OK
    assert "0 bars are missed" in capsys.readouterr().out
    assert main(["--show", str(out)]) == EXIT_OK
    out.write_text(json.dumps(row("ours", worst=9.0)))
    assert main(["--show", str(out)]) == EXIT_FAILED
    out.write_text("")
    assert main(["--show", str(out)]) == EXIT_NO_DATA
