"""A cache directory that only its owner can write: what lies in it is loaded as code.

Place: $FLASH_ATTENTION_CACHE_DIR, else flash_attention in $XDG_CACHE_HOME, else in ~/.cache.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .atomic_file import write_atomically
from .lock_file import holder, open_lock, try_lock

_DIGEST_BYTES = 32


class UnsafeCacheError(RuntimeError):
    """The cache directory could be written by somebody else."""


class CacheLockTimeout(RuntimeError):
    """Another process holds the lock of a cache entry for too long."""


def cache_dir(*parts: str) -> Path:
    """The cache directory or a folder in it, created with mode 0700 and checked."""
    path = _configured_directory()
    if not path.is_absolute():
        path = Path.cwd() / path
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_private(path)
    for part in parts:
        path = path / part
        path.mkdir(exist_ok=True, mode=0o700)
        check_private(path)
    return path


def _configured_directory() -> Path:
    if chosen := os.environ.get("FLASH_ATTENTION_CACHE_DIR"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "flash_attention"
    return Path.home() / ".cache" / "flash_attention"


def check_private(path: Path) -> None:
    """Refuses a directory that is a link, foreign-owned, or writable by group or others."""
    status = os.lstat(path)
    hint = "choose another with FLASH_ATTENTION_CACHE_DIR"
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeCacheError(f"cache directory {path} is not a directory (or is a link); {hint}")
    if status.st_uid != os.geteuid():
        raise UnsafeCacheError(
            f"cache directory {path} belongs to user {status.st_uid}, not to you ({os.geteuid()}); "
            f"{hint}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeCacheError(
            f"cache directory {path} is writable by others (mode "
            f"{stat.S_IMODE(status.st_mode):o}); run `chmod 700 {path}` or {hint}"
        )


@contextmanager
def exclusive(path: Path, timeout_s: float = 300.0) -> Iterator[None]:
    """Holds the lock of the file `path`, which lies beside it as <name>.lock. Raises
    CacheLockTimeout, UnsafeFileError (an OSError) where that name is a link or no regular file,
    and OSError."""
    lock_path = path.with_name(path.name + ".lock")
    descriptor = open_lock(lock_path)
    try:
        deadline = time.monotonic() + timeout_s
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise CacheLockTimeout(
                    f"waited {timeout_s:.0f} s for {lock_path}, held by process "
                    f"{holder(descriptor)}"
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def publish(built: Path, destination: Path) -> None:
    """Moves a finished file into the cache in one step, with a checksum behind its contents.

    The dynamic loader ignores bytes behind an ELF file, but would crash on a truncated one.
    """
    data = built.read_bytes()
    write_atomically(destination, data + hashlib.sha256(data).digest(), mode=0o700)


def is_intact(path: Path) -> bool:
    """Whether `path` exists as publish() wrote it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(data[:-_DIGEST_BYTES]).digest() == data[-_DIGEST_BYTES:]
