"""Files that a user names for results: checked before anything is measured, written whole or not at
all, and each failure a sentence (OutputError)."""

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from .atomic_file import write_atomically

_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


class OutputError(RuntimeError):
    """An output cannot be written; the message says which one and why."""


def check_outputs(
    files: Mapping[str, Path | None], folders: Mapping[str, Path | None] | None = None
) -> None:
    """Whether what the options name can be written, before the work that it is to hold. Nothing is
    changed. None: not asked for. Raises OutputError also where two options name one file."""
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        _checked(option, path, _check_file)
        if path.exists() and not path.is_file():
            continue  # a pipe or a device takes several outputs
        first = taken.setdefault(path.resolve(), option)
        if first != option:
            raise OutputError(
                f"{first} and {option} are both {path}: one would overwrite the other"
            )
    for option, path in (folders or {}).items():
        if path is not None:
            _checked(option, path, _check_folder)


def write_output(path: Path, data: str | bytes) -> None:
    """Gives the file the content in one step; an existing one keeps its mode, and its content if
    this fails. Pipes and devices are written to. Raises OutputError."""
    content = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    try:
        target = _standard_stream(path)
        if target is not None:
            target.flush()
            target.buffer.write(content)
            target.flush()
        elif path.exists() and not path.is_file():
            _write_special(path, content)
        else:
            _replace(path.resolve(), content)  # a link stays a link
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise OutputError(_cannot_write(path, error)) from error


def write_outputs(files: Mapping[Path, Callable[[], str | bytes]]) -> list[str]:
    """Writes all that can be written; a sentence for each that cannot."""
    problems = []
    for path, render in files.items():
        try:
            write_output(path, render())
        except OutputError as error:
            problems.append(str(error))
    return problems


def append_output(path: Path, text: str, *, durable: bool = False) -> None:
    """Adds `text` at the end of the file, whole or not at all. `durable`: it is on the disk when
    this returns. Raises OutputError."""
    try:
        with path.open("ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                _write_all(file.fileno(), text.encode(errors="backslashreplace"))
                if durable:
                    os.fsync(file.fileno())
            except OSError:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    os.ftruncate(file.fileno(), before)
                raise
    except OSError as error:
        raise OutputError(_cannot_write(path, error)) from error


def describe(error: OSError) -> str:
    """What failed and why, in a few words."""
    reason = error.strerror or str(error)
    # Every file has a name in its errors, or is written by this module: what is left is print().
    what = error.filename or ("standard output" if error.errno in _OF_WRITING else "")
    return f"{what}: {reason}" if what else reason


def make_folder(path: Path) -> None:
    """The folder for outputs, with those above it. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(_cannot_write(path, error)) from error


def _cannot_write(path: Path, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.errno == errno.ENXIO:
        reason = "nobody reads from this pipe"
    return f"cannot write {path}: {reason}"


def _checked(option: str, path: Path, check: Callable[[Path], None]) -> None:
    try:
        check(path)
    except (OSError, RuntimeError) as error:
        raise OutputError(f"{option}: {_cannot_write(path, error)}") from error


def _check_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _probe(path.resolve().parent if path.is_symlink() else path.parent)
        return
    if stat.S_ISDIR(mode):
        raise OSError("it is a folder")
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError("it is neither a file nor a pipe")
    if not os.access(path, os.W_OK):
        raise OSError("permission denied, or a read-only file system")
    folder = path.resolve().parent
    if stat.S_ISREG(mode) and os.access(folder, os.W_OK):  # else it is written in place
        _probe(folder)


def _check_folder(path: Path) -> None:
    """It may be made later, with those above it."""
    nearest = path.resolve()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise OSError(
            "it is not a folder" if nearest == path.resolve() else f"{nearest} is not a folder"
        )
    _probe(nearest)


def _probe(folder: Path) -> None:
    """Raises OSError unless a file of a block can be written there. Trying is the only question
    that quotas, network file systems and full disks answer truly."""
    if not folder.is_dir():
        raise OSError(f"there is no folder {folder}")
    with tempfile.TemporaryFile(dir=folder, prefix=".flash-probe-") as file:
        file.write(bytes(4096))
        file.flush()


def _replace(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content, mode=None)
    except PermissionError:  # of the folder: the file itself may still be ours to write
        if not path.is_file():
            raise
        path.write_bytes(content)


def _standard_stream(path: Path) -> TextIO | None:
    """--csv /dev/stdout, also where that is a file: opened again, it would be cut to nothing."""
    if path.parent in (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")) and path.exists():
        for stream, names in ((sys.stdout, ("stdout", "1")), (sys.stderr, ("stderr", "2"))):
            if path.name in names:
                return stream
    return None


def _write_special(path: Path, content: bytes) -> None:
    # O_NONBLOCK: without it, to open a FIFO that nobody reads would wait for ever.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        os.set_blocking(descriptor, True)
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
