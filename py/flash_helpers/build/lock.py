"""One build at a time per build directory.

The operating system holds the lock (flock), so it ends with its holder, however that ends: there is
no stale lock file to hang on. CMake and ninja inherit the open file, and with it the lock: a killed
driver's compilers cannot write into a directory that the next build has already taken.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.1
_REMIND_SECONDS = 30.0


@contextmanager
def build_lock(path: Path) -> Iterator[int]:
    """Holds the lock; yields the file descriptor to pass on to child processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        _acquire(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    reminded = -_REMIND_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now = time.monotonic()
            if now - reminded >= _REMIND_SECONDS:
                reminded = now
                holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
                message = f"waiting for process {holder}, which builds in {path.parent}"
                print(message, file=sys.stderr, flush=True)
            time.sleep(_POLL_SECONDS)
