"""Every row of docs/support.md is run: what it calls supported is computed and compared with the
reference, and every refusal is provoked and must have the exception and the words of its row."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare

from .cases import REFUSED, Computed, InSource
from .func_cases import FUNC_REFUSED, FUNC_SUPPORTED
from .instead_cases import FUNC_INSTEAD
from .library_cases import LIBRARY
from .markdown import ROOT, SUPPORT, code_words, table
from .recorded_cases import CALLS, LAUNCHES, RECORDED
from .supported_cases import SUPPORTED

SUPPORTED_ROWS = {row[0]: row[1] for row in table(SUPPORT, "supported")}
REFUSED_ROWS = {row[0]: row[1:] for row in table(SUPPORT, "refused")}
FUNC_SUPPORTED_ROWS = {row[0]: row[1] for row in table(SUPPORT, "func-supported")}
FUNC_REFUSED_ROWS = {row[0]: row[1:] for row in table(SUPPORT, "func-refused")}
RECORDED_ROWS = {row[0]: row[1:] for row in table(SUPPORT, "recorded")}
LIBRARY_ROWS = {row[0]: row[1:] for row in table(SUPPORT, "library")}


def test_the_tables_and_the_cases_agree() -> None:
    assert set(SUPPORTED_ROWS) == set(SUPPORTED)
    assert set(REFUSED_ROWS) == set(REFUSED)
    assert set(LIBRARY_ROWS) == set(LIBRARY)
    assert set(FUNC_SUPPORTED_ROWS) == set(FUNC_SUPPORTED)
    assert set(FUNC_REFUSED_ROWS) == set(FUNC_REFUSED)
    assert set(RECORDED_ROWS) == set(RECORDED)
    assert {*SUPPORTED_ROWS.values(), *FUNC_SUPPORTED_ROWS.values()} == {"supported"}
    refused = (REFUSED_ROWS, FUNC_REFUSED_ROWS, RECORDED_ROWS, LIBRARY_ROWS)
    assert {row[0] for rows in refused for row in rows.values()} == {"refused"}


def exception_of(cell: str) -> type[BaseException]:
    """`ValueError`, or a class with its module."""
    module, _, name = code_words(cell)[0].rpartition(".")
    found: type[BaseException] = getattr(importlib.import_module(module or "builtins"), name)
    return found


def check_words(text: str, *cells: str) -> None:
    """The pieces of the quoted messages between the `…` stand in the text, in order."""
    position = 0
    for piece in "…".join(cell.removeprefix("`").removesuffix("`") for cell in cells).split("…"):
        found = text.find(piece, position)
        assert found >= 0, f"{piece!r} is not in {text[position:]!r}"
        position = found + len(piece)


def check_refused(row: list[str], provoke: Callable[[], object]) -> None:
    exception = exception_of(row[1])
    with pytest.raises(exception) as caught:
        provoke()
    assert caught.type is exception
    check_words(str(caught.value), *row[2:])


@pytest.mark.parametrize("case", SUPPORTED_ROWS)
def test_supported(case: str, seed: int) -> None:
    check_supported(SUPPORTED[case], seed)


@pytest.mark.parametrize("case", FUNC_SUPPORTED_ROWS)
def test_supported_by_flash_attn_func(case: str, seed: int) -> None:
    check_supported(FUNC_SUPPORTED[case], seed)


def check_supported(compute: Callable[[], Computed], seed: int) -> None:
    torch.manual_seed(seed)
    o, (q, k, v), others = compute()
    reference, _ = attention_reference(q, k, v, **others)
    undefined = reference.isnan()
    assert torch.equal(o.isnan(), undefined)
    outcome = compare(
        torch.where(undefined, 0, o.detach()), torch.where(undefined, 0, reference).detach()
    )
    assert outcome.passed, outcome.describe()


@pytest.mark.parametrize("case", REFUSED_ROWS)
def test_refused(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, provoke = REFUSED_ROWS[case], REFUSED[case]
    if isinstance(provoke, InSource):  # needs a GPU: at least the words are there
        check_words((ROOT / provoke.file).read_text(), row[2])
    else:
        monkeypatch.setattr("flash_attention.emulated.launch", _must_not_launch)
        check_refused(row, lambda: provoke(monkeypatch))


@pytest.mark.parametrize("case", FUNC_REFUSED_ROWS)
def test_refused_by_flash_attn_func(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flash_attention.emulated.launch", _must_not_launch)
    check_refused(FUNC_REFUSED_ROWS[case], lambda: FUNC_REFUSED[case](monkeypatch))


@pytest.mark.parametrize("case", FUNC_INSTEAD)
def test_what_a_refusal_advises_works(case: str, seed: int) -> None:
    assert case in FUNC_REFUSED_ROWS
    check_supported(FUNC_INSTEAD[case], seed)


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    """Of this process alone: DTensor needs one."""
    import torch.distributed as dist

    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", RECORDED_ROWS)
def test_recorded_calls_are_refused(case: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for launch in LAUNCHES:
        monkeypatch.setattr(launch, _must_not_launch)
    for provoke in RECORDED[case]:
        check_refused(RECORDED_ROWS[case], partial(provoke, CALLS[call]))


@pytest.mark.parametrize("case", LIBRARY_ROWS)
def test_libraries_that_are_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_refused(LIBRARY_ROWS[case], lambda: LIBRARY[case](tmp_path, monkeypatch))


def _must_not_launch(*_: Any) -> None:
    raise AssertionError("a refused call was launched")
