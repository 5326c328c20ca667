"""One build at a time per build directory.

CMake and ninja inherit the lock's open file, and with it the lock: a killed driver's compilers
cannot write into a directory that the next build has already taken.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..base.lock_file import holder, is_current, open_lock, try_lock

_POLL_SECONDS = 0.1
_REMIND_SECONDS = 30.0


@contextmanager
def build_lock(path: Path) -> Iterator[int]:
    """Holds the lock; yields the file descriptor to pass on to child processes. Raises OSError."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(path, 0o644)
        try:
            _acquire(descriptor, path)
            if not is_current(descriptor, path):
                continue
            yield descriptor
            return
        finally:
            os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    reminded = -_REMIND_SECONDS
    while not try_lock(descriptor):
        now = time.monotonic()
        if now - reminded >= _REMIND_SECONDS:
            reminded = now
            process = holder(descriptor)
            message = f"waiting for process {process}, which builds in {path.parent}"
            print(message, file=sys.stderr, flush=True)
        time.sleep(_POLL_SECONDS)
