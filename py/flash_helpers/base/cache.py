"""A cache directory that only its owner can write: what lies in it is loaded as code
(trusted_folders has the rule).

Place: $FLASH_ATTENTION_CACHE_DIR, else flash_attention in $XDG_CACHE_HOME, else in ~/.cache.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from .atomic_file import write_atomically
from .lock_file import holder, is_current, open_lock, try_lock
from .trusted_folders import UnsafeCacheError as UnsafeCacheError
from .trusted_folders import make_private

T = TypeVar("T")

_DIGEST_BYTES = 32
_SUM = b"// sha256 of the lines above: "


class CacheLockTimeout(RuntimeError):
    """Another process holds the lock of a cache entry for too long."""


def cache_dir(*parts: str) -> Path:
    """The cache directory or a folder in it, created with mode 0700 and checked. Raises
    UnsafeCacheError if somebody else could write it or replace it, and OSError."""
    path = configured_directory()
    make_private(path)
    for part in parts:
        path = path / part
        make_private(path)
    return path


def configured_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the cache lies, an absolute path; it need not be there."""
    if chosen := environ.get("FLASH_ATTENTION_CACHE_DIR"):
        path = Path(chosen)
    elif xdg := environ.get("XDG_CACHE_HOME"):
        path = Path(xdg) / "flash_attention"
    else:
        path = Path(environ.get("HOME") or Path.home()) / ".cache" / "flash_attention"
    return Path.cwd() / path


@contextmanager
def exclusive(path: Path, timeout_s: float = 300.0) -> Iterator[None]:
    """Holds the lock of the file `path`, which lies beside it as <name>.lock. Raises
    CacheLockTimeout, UnsafeFileError (an OSError) where that name is a link or no regular file,
    and OSError."""
    lock_path = path.with_name(path.name + ".lock")
    deadline = time.monotonic() + timeout_s
    descriptor = _locked(lock_path, deadline, timeout_s)
    while not is_current(descriptor, lock_path):
        os.close(descriptor)
        descriptor = _locked(lock_path, deadline, timeout_s)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, deadline: float, timeout_s: float) -> int:
    descriptor = open_lock(path)
    try:
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise CacheLockTimeout(
                    f"waited {timeout_s:.0f} s for {path}, held by process {holder(descriptor)}"
                )
            time.sleep(0.02)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def build_once(path: Path, load: Callable[[], T | None], build: Callable[[], T]) -> T:
    """What `load` finds in the cache entry `path`; where that is None, what `build` makes of it and
    publishes, in one process at a time: another that wants it waits and loads. Raises what the two
    raise, and what exclusive() does."""
    if (found := load()) is not None:
        return found
    with exclusive(path):
        found = load()
        return build() if found is None else found


def publish_built(build: Callable[[Path], object], destination: Path) -> None:
    """publish() of the file that `build` writes where it is told, in a folder of its own."""
    name = f".{destination.name}-"
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=name) as folder:
        built = Path(folder, "built")
        build(built)
        publish(built, destination)


def publish(built: Path, destination: Path) -> None:
    """publish_bytes() of a finished file."""
    publish_bytes(built.read_bytes(), destination)


def publish_bytes(data: bytes, destination: Path) -> None:
    """Puts a finished program, library or cubin into the cache in one step, with a checksum after
    its contents.

    Loaders and disassemblers ignore bytes after an ELF file, but would crash on a truncated one.
    """
    write_atomically(destination, data + hashlib.sha256(data).digest(), mode=0o700)


def is_intact(path: Path) -> bool:
    """Whether `path` exists as publish() wrote it."""
    return read_intact_bytes(path) is not None


def read_intact_bytes(path: Path) -> bytes | None:
    """What publish_bytes() was given; None if there is nothing, or it is damaged."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    data = written[:-_DIGEST_BYTES]
    return data if hashlib.sha256(data).digest() == written[-_DIGEST_BYTES:] else None


def publish_text(text: str, destination: Path) -> None:
    """Like publish_bytes(), for a text in which // begins a comment (PTX): the checksum is its last
    line, so that it stays readable."""
    data = text.encode()
    write_atomically(destination, data + _sum_line(data), mode=0o600)


def read_intact_text(path: Path) -> str | None:
    """What publish_text() was given; None if there is nothing, or it is damaged."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    end = written.rfind(_SUM)
    data = written[: max(end, 0)]
    return data.decode() if written == data + _sum_line(data) else None


def _sum_line(data: bytes) -> bytes:
    return _SUM + hashlib.sha256(data).hexdigest().encode() + b"\n"
