"""The copy of the sources that a build compiles: content decides what is new, never a time stamp.

ninja compares modification times. A file restored from an archive is older than the object that an
earlier version of it produced, and a touched file is newer than one it equals. So ninja never sees
the working tree: it compiles a copy inside the build directory that is rewritten only where its
content differs. A rewritten file is newer than everything built from the former one; a touched one
stays as it is; the include closure in the compiler's dependency files does the rest.

Each copy begins with a `#line` that names its original, so that error messages, assertions and the
line table of -lineinfo lead to the file one would edit. (record_compile.sh takes those names out of
nvcc's dependency files.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..codegen.files import write_if_changed

SOURCE_SUFFIXES = (".h", ".cuh", ".cu", ".cpp", ".hpp", ".inc")


@dataclass(frozen=True)
class Changes:
    written: tuple[str, ...]
    deleted: tuple[str, ...]


def stage(files: Mapping[str, str], destination: Path) -> Changes:
    """Makes `destination` hold exactly `files` (relative path -> content)."""
    written = []
    for name, content in files.items():
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        if write_if_changed(destination / name, content):
            written.append(name)
    expected = {destination / name for name in files}
    deleted = []
    for path in sorted(destination.rglob("*")) if destination.is_dir() else []:
        if path not in expected and not path.is_dir():
            path.unlink()
            deleted.append(str(path.relative_to(destination)))
    return Changes(tuple(written), tuple(deleted))


def read_sources(root: Path, folders: Iterable[str]) -> dict[str, str]:
    """The C++ and CUDA files below the folders of `root`, each with its `#line`."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                found[str(path.relative_to(root))] = _line_directive(path) + path.read_text()
    return found


def read_headers(root: Path, prefix: str) -> dict[str, str]:
    """A third-party header tree, unchanged, under another name."""
    return {
        f"{prefix}/{path.relative_to(root)}": path.read_text()
        for path in sorted(root.rglob("*.h"))
        if path.is_file()
    }


def _line_directive(path: Path) -> str:
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{escaped}"\n'


def content_hash(parts: Mapping[str, str]) -> str:
    """One SHA-256 over names and contents; lengths are hashed too, so no two splits agree."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        for piece in (name.encode(), parts[name].encode()):
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
    return digest.hexdigest()
