"""The functions that headers declare, and which of them no test calls."""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_CONTINUED = re.compile(r"\\\n")
_PRIVATE = re.compile(r"^ *private:.*?^};", re.S | re.M)
# A qualifier of functions and constants, then the word in front of the first parenthesis, unless a
# value or a body begins before it.
_FUNCTION = re.compile(r"\b(?:FLASH_DEVICE|__device__|constexpr|inline)\b([^;{}()=]*?)\b(\w+)\s*\(")


def declared(text: str) -> set[str]:
    """The names of a header's functions and constructors, without private ones and conversions.
    Functions that a macro defines count too."""
    text = _PRIVATE.sub("", _CONTINUED.sub(" ", _COMMENT.sub("", text)))
    return {name for before, name in _FUNCTION.findall(text) if "operator" not in before}


def untested(headers: Path, names: list[str], tests: Path) -> list[str]:
    """`header: function` for every function of these headers (as an #include names them) that no
    kernel of a test calls. A kernel is a .cu below `tests` that includes the header itself and
    whose path some test_*.py there names."""
    scripts = "".join(path.read_text() for path in sorted(tests.rglob("test_*.py")))
    kernels = {
        path: _COMMENT.sub("", path.read_text())
        for path in sorted(tests.rglob("*.cu"))
        if f'"{path.relative_to(tests)}"' in scripts
    }
    missing = []
    for name in names:
        calling = "".join(text for text in kernels.values() if f'#include "{name}"' in text)
        for function in sorted(declared((headers / name).read_text())):
            if not re.search(rf"\b{function}(\s+\w+)?\s*[<({{]", calling):
                missing.append(f"{name}: {function}")
    return missing
