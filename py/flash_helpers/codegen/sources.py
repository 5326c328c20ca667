"""Fingerprints of what a kernel is compiled from."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..paths import csrc_dir

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def included_headers(text: str, include_dir: Path | None = None) -> list[Path]:
    """Our headers that `text` includes, directly or through others, sorted."""
    include_dir = include_dir or csrc_dir() / "include"
    found: set[Path] = set()
    pending = [text]
    while pending:
        for name in _INCLUDE.findall(pending.pop()):
            header = include_dir / name
            if header not in found:
                if not header.is_file():
                    raise FileNotFoundError(f'#include "{name}": there is no {header}')
                found.add(header)
                pending.append(header.read_text())
    return sorted(found)


def source_fingerprint(text: str, include_dir: Path | None = None) -> str:
    """A digest of a translation unit's text and of every header of ours that it reads."""
    include_dir = include_dir or csrc_dir() / "include"
    digest = hashlib.sha256(text.encode())
    for header in included_headers(text, include_dir):
        content = hashlib.sha256(header.read_bytes()).hexdigest()
        digest.update(f"\0{header.relative_to(include_dir)}\0{content}".encode())
    return digest.hexdigest()
