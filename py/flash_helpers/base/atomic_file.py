"""Files that are there whole or not at all."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from .plain_file import refuse_special


def write_atomically(
    path: Path, data: bytes, *, mode: int | None = 0o644, durable: bool = False
) -> None:
    """Gives `path` the content `data` in one step: a reader finds the old file, the new one, or
    none, and a reader that has the old one open keeps it. `mode` None: that of the old file, or
    what the user's umask gives. `durable`: the content is on the disk before it takes the name,
    so that a power cut does not leave an empty file. A link is replaced, not followed. Raises
    UnsafeFileError where a FIFO, a device or a folder has the name, and OSError."""
    if not path.is_symlink():
        refuse_special(path)
    if mode is None:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    prefix = f".{path.name[:50]}."  # of a long name, the whole with more letters would be too long
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)  # mkstemp's 0600 hides it from other users
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  the atomic step, under its POSIX name
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    """Read where the kernel shows it: os.umask() can only tell it by changing it, which other
    threads would notice."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
