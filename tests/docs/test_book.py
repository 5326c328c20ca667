"""The book is one notebook a page: its blocks of Python run from top to bottom, in the emulator."""

from __future__ import annotations

import linecache
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.matrices.config import MatmulConfig
from flash_attention.triton_kit.tuning import Tuned

from .blocks import blocks
from .markdown import BOOK

FIRST = BOOK / "00-baseline.md"
PAGES = sorted(BOOK.glob("*.md"))


def program(text: str, path: Path) -> str:
    """The Python of a page that takes no GPU, each line where it stands in the page."""
    path.write_text(text)
    lines = [""] * text.count("\n")
    for block in blocks(path):
        if block.language == "python" and not block.on_gpu:
            own = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(own)] = own
    return "\n".join(lines) + "\n"


def run(name: str, source: str, known: dict[str, Any]) -> dict[str, Any]:
    """All names that the program leaves. Triton reads the text of kernels where tracebacks do; the
    name is part of their PTX, by which the emulator finds again what it has compiled."""
    module = ModuleType(name)
    vars(module).update(known | {"__name__": name})
    sys.modules[name] = module
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(source, name, "exec", dont_inherit=True), vars(module))
    return vars(module)


@cache
def names_of_the_first_chapter(folder: Path) -> dict[str, Any]:
    source = program(FIRST.read_text(), folder / FIRST.name)
    return run(f"book_{FIRST.stem}", source, {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("book")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page: Path, folder: Path) -> None:
    """Later pages know the names of the first one."""
    known = names_of_the_first_chapter(folder)
    if page != FIRST:
        run(f"book_{page.stem}", program(page.read_text(), folder / page.name), dict(known))


def test_what_the_tuner_finds_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block for a GPU, of tensors without memory and with a tuner that measures nothing."""
    monkeypatch.setattr(operators, "matmul_best_config", lambda *_: Tuned(MatmulConfig(), 0.2))
    (text,) = (b.text for b in blocks(BOOK / "02-matmul.md") if "matmul_best_config" in b.text)
    run("book_tuned", text.replace('"cuda"', '"meta"'), {})
    assert re.search(r"MatmulConfig\(.*\) 0\.2 ms 687\.\d+ TFLOP/s", capsys.readouterr().out)


def test_every_exercise_has_its_answer() -> None:
    """As many answers to a chapter as it sets exercises, each with a block of Python."""
    answers = (BOOK / "answers.md").read_text()
    for page in (page for page in PAGES if page.name[0].isdigit()):
        exercises = page.read_text().partition("\n## Exercises\n")[2]
        numbers = [line[0] for line in exercises.splitlines() if line[:1].isdigit()]
        chapter = answers.partition(f"\n## Chapter {int(page.name[:2])}\n")[2].partition("\n## ")[0]
        parts = chapter.split("\n### ")[1:]
        assert numbers and [part[0] for part in parts] == numbers, page.name
        assert all("```python" in part for part in parts), page.name


def test_what_is_wrong_is_found_and_what_takes_a_gpu_is_left_out(tmp_path: Path) -> None:
    page = "A page.\n```python\n# on a GPU\n1 / 0\n```\n```python\nassert %s\n```\n"
    run("book_planted", program(page % "True", tmp_path / "page.md"), {})
    with pytest.raises(AssertionError) as error:
        run("book_planted", program(page % "False", tmp_path / "page.md"), {})
    assert error.traceback[-1].lineno == 6  # counted from 0: as in the page
