"""What Triton compiled once is not compiled again, and a damaged file of it is no kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from triton import knobs

from flash_attention.operators.elementwise import kernels
from flash_attention.operators.elementwise.op import BlockConfig, Elementwise
from flash_attention.operators.elementwise.problem import elements
from flash_attention.triton_kit.offline import compile_op
from tests.operators.planting import planted

X = torch.zeros(8)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bool]]:
    """Of every kernel that Triton is asked for, whether it was kept; at first none is."""
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    hits: list[bool] = []
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
        yield hits


def compiled(old: str = "", new: str = "") -> str:
    """PTX, for kernels that this process has not seen yet, as another process' first are."""
    op = planted(Elementwise("add"), kernels, old, new)
    return compile_op(op, BlockConfig(), elements((X, X, X), 0.0, True)).ptx


def test_it_is_found_again_unless_it_changed(found: list[bool]) -> None:
    first = compiled()
    assert compiled() == first and found == [False, True]
    assert compiled("z = x + y", "z = x - y") != first  # in a function that the kernel calls
    assert found == [False, True, False]


def test_every_damaged_or_lost_file_is_made_again(found: list[bool], tmp_path: Path) -> None:
    first = compiled()
    files = sorted((tmp_path / "cache" / "triton").iterdir())
    assert {".ptx", ".json"} <= {path.suffix for path in files}
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert compiled() == first and not found[-1], path.name
        assert path.read_bytes() == whole and compiled() == first and found[-1]
    files[0].unlink()
    assert compiled() == first and not found[-1]
