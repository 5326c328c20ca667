"""Lock files: flock on a file that names its holder.

The operating system holds the lock, so it ends with its holder, however that ends: there is no
stale lock to hang on.
"""

import fcntl
import os
from pathlib import Path

from .plain_file import open_plain

_LONGEST_HOLDER = 32  # bytes


def open_lock(path: Path, mode: int = 0o600) -> int:
    """A file descriptor for try_lock(); the file is created with `mode`, less the umask. Raises
    UnsafeFileError where the name is a link or no regular file, and OSError."""
    return open_plain(path, os.O_RDWR | os.O_CREAT, mode)


def try_lock(descriptor: int) -> bool:
    """Takes the lock, without waiting, and writes this process's number into the file; False where
    another has it. It lasts until the descriptor and its copies in child processes are closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return True


def is_current(descriptor: int, path: Path) -> bool:
    """Whether the file is still the one at `path`. One that was deleted while somebody waited for
    it locks nobody out: the next to come makes another."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def holder(descriptor: int) -> str:
    """The number of the process that has the lock, for messages; "unknown" where it has not been
    written yet."""
    text = os.pread(descriptor, _LONGEST_HOLDER, 0).decode(errors="replace").strip()
    return text or "unknown"
