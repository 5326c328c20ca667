"""Writing generated files: atomically, only when they change, never into the sources."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..atomic_file import write_atomically
from ..paths import csrc_dir, repository_root

_SOURCE_FOLDERS = frozenset(
    {".ci", ".git", "csrc", "docs", "flash_attention", "previous_kernels", "py", "tests", "tools"}
)


def write_if_changed(path: Path, text: str) -> bool:
    """Give `path` the content `text`; True if it had another. An unchanged file keeps its time
    stamp, so nothing is rebuilt for it; a reader sees the old file or the new one, never half."""
    data = text.encode()
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return False
    write_atomically(path, data)
    return True


def check_output_folder(out_dir: Path) -> Path:
    """`out_dir` as an absolute path, if generated files may lie there."""
    resolved = out_dir.resolve()
    root = repository_root()
    inside_sources = resolved.is_relative_to(csrc_dir().resolve())
    if root is not None and resolved.is_relative_to(root):
        parts = resolved.relative_to(root).parts
        inside_sources = inside_sources or not parts or parts[0] in _SOURCE_FOLDERS
    if inside_sources:
        raise ValueError(
            f"generated files may not be written to {resolved}, which belongs to the sources: "
            "give a build folder such as build/generated"
        )
    return resolved
