"""Files that documents and comments name are there: a path, or the end of one."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from .markdown import ROOT, documents

FOLDERS = ("csrc", "flash_attention", "previous_kernels", "py", "tests", "tools")
PRODUCT = ("csrc", "flash_attention", "previous_kernels", "py", "tools")
NAME = re.compile(
    r"(?<![\w./<$*{-])((?:[\w.-]+/)*[\w-]+\.(?:py|cuh|cu|cpp|h|sh|toml|jinja|md|svg))(?![\w(/*])"
)
# Of other software, made by a build, or of an example.
ELSEWHERE = {
    "build_info.cpp", "cuda_fp16.h", "file.py", "kernel.cu", "ptx_type.cpp",
    "registry.cpp", "run.py",
}  # fmt: skip


def present() -> set[str]:
    """Files of the repository, each after a slash."""
    found = [
        path for folder in (*FOLDERS, "docs", "examples") for path in (ROOT / folder).rglob("*.*")
    ]
    return {f"/{path.relative_to(ROOT)}" for path in (*found, *ROOT.glob("*.*"))}


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the comments and docstrings of a source file."""
    text = path.read_text()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            docstring = token.type == tokenize.STRING and token.string.startswith('"""')
            if token.type == tokenize.COMMENT or docstring:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(text.splitlines(), start=1):
            if "//" in line:
                yield number, line[line.index("//") :]


def texts() -> Iterator[tuple[str, str]]:
    """(place, text) of every line of a document and every comment of the product."""
    for path in documents():
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line
    for path in (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.*")):
        if path.suffix in (".py", ".h", ".cuh", ".cu", ".cpp"):
            for number, text in comments(path):
                yield f"{path.relative_to(ROOT)}:{number}", text


def missing(text: str, files: set[str]) -> list[str]:
    names = {name.lstrip("./") for name in NAME.findall(text)} - ELSEWHERE
    return sorted(name for name in names if not any(file.endswith(f"/{name}") for file in files))


def test_files_that_are_named_are_there() -> None:
    files = present()
    found = [(place, missing(text, files)) for place, text in texts()]
    assert len(found) > 1000
    assert [(place, names) for place, names in found if names] == []


@pytest.mark.parametrize(
    "text", ["see tests/config/test_imports.py", "`wave_model.py`", "// mirrors emulator/abi.py."]
)
def test_a_file_that_is_gone_is_found(text: str) -> None:
    assert len(missing(text, present())) == 1
