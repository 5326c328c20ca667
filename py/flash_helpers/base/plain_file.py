"""Files under names that others can foresee: a lock, a log or a table in a folder that is not ours
alone. Whoever may create entries there can have put a link under the name beforehand."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_KINDS = {
    stat.S_IFLNK: ("a symbolic link", errno.ELOOP),
    stat.S_IFDIR: ("a directory", errno.EISDIR),
    stat.S_IFIFO: ("a FIFO", errno.EINVAL),
    stat.S_IFSOCK: ("a socket", errno.EINVAL),
    stat.S_IFCHR: ("a device", errno.EINVAL),
    stat.S_IFBLK: ("a device", errno.EINVAL),
}


class UnsafeFileError(OSError):
    """Writing under this name would change something else than a file of that one name."""


def open_plain(path: Path, flags: int, mode: int = 0o600) -> int:
    """os.open() for a name that others can foresee: a file descriptor of a regular file that has no
    other name. It never waits (for the reader of a FIFO), and nothing is truncated before the
    check. Raises UnsafeFileError for a link, a hard link, a FIFO, a device, a socket or a
    directory, and OSError."""
    careful = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | careful, mode)
    except OSError as error:
        if (kind := _special(path, os.lstat)) is not None:
            raise _refusal(path, *kind) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(path, *_kind(status))
        if status.st_nlink > 1:
            raise _refusal(path, "a file with another name (a hard link)", errno.EMLINK)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_special(path: Path) -> None:
    """Raises UnsafeFileError if `path` leads, through links too, to a FIFO, a device, a socket or a
    directory: reading it may never end, and root would replace a device by a file."""
    if (kind := _special(path, os.stat)) is not None:
        raise _refusal(path, *kind)


def _special(path: Path, look: Callable[[Path], os.stat_result]) -> tuple[str, int] | None:
    """What lies there; None for a regular file, for nothing, and where that cannot be known."""
    try:
        status = look(path)
    except OSError:
        return None
    return None if stat.S_ISREG(status.st_mode) else _kind(status)


def _kind(status: os.stat_result) -> tuple[str, int]:
    return _KINDS.get(stat.S_IFMT(status.st_mode), ("no regular file", errno.EINVAL))


def _refusal(path: Path, kind: str, number: int) -> UnsafeFileError:
    return UnsafeFileError(
        number, f"it is {kind}, and not written: remove it, or name another file", str(path)
    )
