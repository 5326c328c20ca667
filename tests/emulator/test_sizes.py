"""How large the emulator's parts are. Growth shall be noticed: who needs more raises a limit."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "py" / "flash_helpers" / "emulator", ROOT / "csrc" / "emulator")
MAX_FILE = 400  # lines, all of them
# By part: lines with neither a comment alone nor nothing on them, and all lines.
LIMITS = {
    "translator": (1150, 1460),
    "runtime": (1200, 1560),
    "detector": (690, 850),
    "counters": (490, 650),
    "door": (1630, 2080),
    "sm90": (2560, 3220),  # Hopper's units
}
CORE = ("translator", "runtime")  # what turns PTX into results
MAX_CORE = 2500  # lines of code
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)


def files() -> list[tuple[str, Path]]:
    """Every source file with its part, the first folder below the root of the emulator; what lies
    at the root belongs to the door."""
    found = []
    for root in SOURCES:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".cpp", ".h"):
                inner = path.relative_to(root).parts
                found.append((inner[0] if len(inner) > 1 else "door", path))
    return found


def python_code_lines(text: str) -> int:
    """Without comments, blank lines and docstrings."""
    lines: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if [t.type for t in statement] != [tokenize.STRING]:
                lines.update(n for t in statement for n in range(t.start[0], t.end[0] + 1))
            statement = []
        elif token.type not in _LAYOUT:
            statement.append(token)
    return len(lines)


def cpp_code_lines(text: str) -> int:
    return sum(bool(line.strip()) for line in re.sub(r"//[^\n]*", "", text).splitlines())


def sizes() -> tuple[Counter[str], Counter[str]]:
    """Lines of code and all lines of every part."""
    code: Counter[str] = Counter()
    everything: Counter[str] = Counter()
    for part, path in files():
        text = path.read_text()
        count = python_code_lines if path.suffix == ".py" else cpp_code_lines
        code[part] += count(text)
        everything[part] += len(text.splitlines())
    return code, everything


def test_parts_stay_below_their_limits() -> None:
    code, everything = sizes()
    assert set(CORE) <= set(code) <= set(LIMITS), "a part without a limit"
    for part in code:
        limits = LIMITS[part]
        print(f"{part}: {code[part]} lines of code, {everything[part]} lines; limits {limits}")
        assert code[part] <= limits[0] and everything[part] <= limits[1], part
        assert min(limits[0] - code[part], limits[1] - everything[part]) < 200, f"lower {part}"


def test_translator_and_runtime_together() -> None:
    code, everything = sizes()
    total = sum(code[part] for part in CORE)
    print(
        f"translator and runtime: {total} lines of code, {sum(everything[p] for p in CORE)} lines"
    )
    assert total < MAX_CORE


@pytest.mark.parametrize("path", [path for _, path in files()], ids=lambda path: path.name)
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) < MAX_FILE


def test_what_counts_as_code() -> None:
    python = (
        '"""doc\n\nmore"""\n\nx = """a\n\nb"""  # why\n\n\ndef f():\n    """Doc."""\n    return 1\n'
    )
    assert python_code_lines(python) == 5  # x = on three lines, def, return
    assert cpp_code_lines("// why\n\nint x;  // what\n  // more\n}\n") == 2
