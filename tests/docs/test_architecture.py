"""docs/architecture.md names every folder of the product, and its floors are those of the test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .markdown import ROOT, between, code_words, table
from .test_floors import FLOORS

PAGE = ROOT / "docs" / "architecture.md"
PRODUCT = ("csrc", "flash_attention", "previous_kernels", "py", "tools")
SOURCES = {".cpp", ".cu", ".cuh", ".h", ".jinja", ".py"}


def folders(root: Path) -> set[str]:
    """Folders with source files of the product, relative to the root. A step's body has a folder of
    its own, all of which the page names by their pattern."""
    files = (path for folder in PRODUCT for path in (root / folder).rglob("*"))
    found = {str(p.parent.relative_to(root)) for p in files if p.suffix in SOURCES}
    return {
        re.sub(r"previous_kernels/\d\d_\w+", "previous_kernels/NN_name", name) for name in found
    }


def named(text: str) -> set[str]:
    """Paths as they stand, dotted packages of the floors as paths, and folders of the emulator."""
    found = set()
    for word in code_words(text):
        if "/" in word:
            found.add(word.rstrip("/"))
            found.add(f"py/flash_helpers/emulator/{word.rstrip('/')}")
        else:
            path = word.replace(".", "/")
            found |= {path, f"py/{path}"}
    return found


def test_every_folder_is_named() -> None:
    present = folders(ROOT)
    assert len(present) > 40
    assert present - named(PAGE.read_text()) == set()


def test_no_folder_is_named_that_is_gone() -> None:
    words = {word for word in code_words(PAGE.read_text()) if re.match(r"\w+/[\w/]+/$", word)}
    gone = {w for w in words if not (ROOT / w).is_dir() and "NN_name" not in w}
    assert len(words) > 20 and gone == set()


def test_a_new_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "py/flash_lab/new").mkdir(parents=True)
    (tmp_path / "py/flash_lab/new/module.py").write_text("")
    assert folders(tmp_path) - named(PAGE.read_text()) == {"py/flash_lab/new"}


def test_the_floors_are_those_that_are_tested() -> None:
    rows = table(PAGE, "floors")
    assert [int(row[0]) for row in rows] == list(range(1, len(FLOORS) + 1))
    assert [tuple(code_words(row[1])) for row in rows] == list(FLOORS)


@pytest.mark.parametrize("picture", [ROOT / "docs" / "images" / "architecture.svg"])
def test_the_picture_names_the_packages(picture: Path) -> None:
    text = picture.read_text()
    rooms = {room for floor in FLOORS for room in floor} - {"flash_helpers.csrc"}
    last = {room.rpartition(".")[2] for room in rooms}
    assert {word for word in last if not re.search(rf"\b{word}\b", text)} == set()
    headers = {p.name for p in (ROOT / "csrc/include/flash").iterdir() if p.is_dir()}
    assert {name for name in headers if f"{name}/" not in text} == set()


def test_the_glossary_is_short() -> None:
    """A word that needs a line here is a word to avoid."""
    rows = between(PAGE, "words").splitlines()
    assert 8 <= len([row for row in rows if row.startswith("| ")]) - 2 <= 16
