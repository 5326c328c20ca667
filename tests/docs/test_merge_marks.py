"""No file has a half of a merge left in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .markdown import ROOT

MARK = re.compile(rb"^(<{7} |>{7} )", re.M)
FOLDERS = (
    "csrc", "docs", "examples", "flash_attention", "previous_kernels", "py", "tests", "tools",
)  # fmt: skip
TEXTS = (".cpp", ".cu", ".cuh", ".h", ".jinja", ".md", ".py", ".toml", ".txt")


def texts(root: Path) -> Iterator[Path]:
    yield from (path for path in root.iterdir() if path.suffix in TEXTS)
    for folder in FOLDERS:
        yield from (path for path in (root / folder).rglob("*") if path.suffix in TEXTS)


def marked(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in texts(root) if MARK.search(path.read_bytes())]


def test_no_file_has_marks_of_a_merge() -> None:
    assert marked(ROOT) == []


@pytest.mark.parametrize("mark", ["<" * 7 + " HEAD", ">" * 7 + " branch"])
def test_a_mark_is_found(mark: str, tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"one\n{mark}\ntwo\n")
    (tmp_path / "README.md").write_text("# A heading\n=======\n")
    assert marked(tmp_path) == ["docs/page.md"]
