"""The copy of the sources that a build compiles: content decides what is new, never a time stamp.

ninja compares modification times. A file restored from an archive is older than the object that an
earlier version of it produced, and a touched file is newer than one it equals. So ninja never sees
the working tree: it compiles a copy inside the build directory that is rewritten only where its
content differs. A rewritten file is newer than everything built from the former one; a touched one
stays as it is; the include closure in the compiler's dependency files does the rest.

Each copy begins with a `#line` that names its original, so that error messages, assertions and the
line table of -lineinfo lead to the file one would edit. nvcc takes those names for dependencies;
record_compile.sh takes them out again, by the list that `without_originals` writes.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..codegen.files import write_if_changed
from ..compilers.errors import BuildError

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
    return {
        str(path.relative_to(root)): _line_directive(path) + _text(path)
        for path in _sources(root, folders)
    }


def without_originals(root: Path, folders: Iterable[str]) -> str:
    """A sed script that deletes from nvcc's dependency files, which have one name a line, the lines
    that name exactly the files of `read_sources`."""
    paths = sorted({str(path.resolve()) for path in _sources(root, folders)})
    return "".join(f"/^ *{_as_nvcc_writes(path)} *\\\\*$/d\n" for path in paths)


def _as_nvcc_writes(path: str) -> str:
    """A pattern of sed: nvcc puts a backslash before blanks, and before nothing else."""
    return re.sub(r"[]\[\\.*^$/]", r"\\\g<0>", path).replace(" ", "\\\\ ")


def _sources(root: Path, folders: Iterable[str]) -> list[Path]:
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*")))
    return [path for path in paths if path.suffix in SOURCE_SUFFIXES and path.is_file()]


def read_headers(root: Path, prefix: str) -> dict[str, str]:
    """A third-party header tree, unchanged, under another name."""
    return {
        f"{prefix}/{path.relative_to(root)}": _text(path)
        for path in sorted(root.rglob("*.h"))
        if path.is_file()
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BuildError(f"{path} is not UTF-8 (at byte {error.start})") from error


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
