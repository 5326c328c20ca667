"""No file is longer than 300 lines, and no function than 60: what is longer holds two things. What
a docstring tells users of a function with 30 parameters is not one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc", "flash_attention", "previous_kernels", "py", "tests", "tools")
MAX_FILE, MAX_FUNCTION = 300, 60  # lines, all of them; of a function with its decorators
CUDA = (".cpp", ".cu", ".cuh", ".h")


def sources(root: Path) -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))]
    return [
        path
        for path in [*found, *sorted(root.glob("*.py"))]
        if path.suffix in (".py", ".pyi", *CUDA) and not path.is_relative_to(root / "build")
    ]


def long_files(root: Path) -> Iterator[str]:
    for path in sources(root):
        length = len(path.read_text().splitlines())
        if length > MAX_FILE:
            yield f"{path.relative_to(root)}: {length} lines"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def long_functions(root: Path) -> Iterator[str]:
    """Of Python, without docstrings; parameters of tests stand in their decorators and count."""
    for path in sources(root):
        if path.suffix in CUDA:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                length = (node.end_lineno or first) - first + 1 - docstring_lines(node)
                if length > MAX_FUNCTION:
                    yield f"{path.relative_to(root)}: {node.name} has {length} lines"


def test_no_file_is_long() -> None:
    assert len(sources(ROOT)) > 600
    assert list(long_files(ROOT)) == []


def test_no_function_is_long() -> None:
    assert list(long_functions(ROOT)) == []


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    for folder in ("csrc/tile", "py/build", "build", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "csrc/tile/long.cuh").write_text("\n" * 301)
    (tmp_path / "csrc/tile/fits.cuh").write_text("\n" * 300)
    (tmp_path / "build/generated.cpp").write_text("\n" * 1000)
    (tmp_path / "setup.py").write_text("x = 1\n" * 301)
    body = "    x = 1\n" * 59
    (tmp_path / "py/build/fits.py").write_text(f"def fits():\n{body}")
    (tmp_path / "py/build/long.py").write_text(f"class A:\n  def long(self):\n{body}    y = 2\n")
    (tmp_path / "tests/test_it.py").write_text(f"@mark(\n  1)\nasync def decorated():\n{body}")
    assert list(long_files(tmp_path)) == ["csrc/tile/long.cuh: 301 lines", "setup.py: 301 lines"]
    assert list(long_functions(tmp_path)) == [
        "py/build/long.py: long has 61 lines",
        "tests/test_it.py: decorated has 62 lines",
    ]
