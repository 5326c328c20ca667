"""Writing generated files: atomically, only when they change, never into the sources."""

from pathlib import Path

from ..base.atomic_file import write_atomically
from ..base.paths import csrc_dir, repository_root
from ..base.plain_file import refuse_special

_SOURCE_FOLDERS = frozenset(
    {".ci", ".git", "csrc", "docs", "flash_attention", "previous_kernels", "py", "tests", "tools"}
)


def write_if_changed(path: Path, text: str) -> bool:
    """Give `path` the content `text`; True if it had another. An unchanged file keeps its time
    stamp, so nothing is rebuilt for it; a reader sees the old file or the new one, never half."""
    if has_content(path, text):
        return False
    write_atomically(path, text.encode())
    return True


def has_content(path: Path, text: str) -> bool:
    """Raises UnsafeFileError for what is not a file (a FIFO would be waited for), and OSError."""
    refuse_special(path)
    try:
        return path.read_bytes() == text.encode()
    except FileNotFoundError:
        return False


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
