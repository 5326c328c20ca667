"""Fingerprints of what a kernel is compiled from."""

import hashlib
import re
from pathlib import Path

from ..base.paths import csrc_dir
from ..kernels.registry import families

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def include_dirs() -> tuple[Path, ...]:
    """What kernels are compiled with: the headers, the folder with previous_kernels/, and the
    headers of families that live elsewhere."""
    others = (family.SOURCES / "include" for family in families() if family.SOURCES)
    return csrc_dir() / "include", csrc_dir().parent, *others


def included_headers(text: str, include_dir: Path | None = None) -> list[Path]:
    """Our headers that `text` includes, directly or through others, sorted."""
    folders = (include_dir,) if include_dir else include_dirs()
    found: set[Path] = set()
    pending = [text]
    while pending:
        for name in _INCLUDE.findall(pending.pop()):
            candidates = [folder / name for folder in folders]
            header = next((path for path in candidates if path.is_file()), None)
            if header is None:
                raise FileNotFoundError(f'#include "{name}": there is no {candidates[0]}')
            if header not in found:
                found.add(header)
                pending.append(header.read_text())
    return sorted(found)


def source_fingerprint(text: str, include_dir: Path | None = None) -> str:
    """A digest of a translation unit's text and of every header of ours that it reads."""
    digest = hashlib.sha256(text.encode())
    folders = (include_dir,) if include_dir else include_dirs()
    for header in included_headers(text, include_dir):
        # As the #include names it: the same for every place of the tree.
        name = next(header.relative_to(f) for f in folders if header.is_relative_to(f))
        content = hashlib.sha256(header.read_bytes()).hexdigest()
        digest.update(f"\0{name}\0{content}".encode())
    return digest.hexdigest()
