"""Results in a JSON Lines file that survives whatever ends the sweep.

Every row is appended in one write and forced to disk. A `started` row goes before each run, so a
crash names its culprit. Lines that cannot be read are moved to `<store>.corrupt`, never dropped.
One sweep at a time writes a store: flock on `<store>.lock`, which ends with its holder.
"""

import datetime
import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.lock_file import holder, try_lock
from flash_helpers.base.safe_read import read_regular

from .records import FINAL_STATUSES, STARTED, decode, encode
from .row import Row


class StoreError(RuntimeError):
    """The store cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class BadLine:
    number: int  # from 1
    reason: str
    content: bytes


@dataclass(frozen=True)
class Contents:
    rows: list[Row]
    bad: list[BadLine]

    def finished(self) -> list[Row]:
        """The last final row of every (key, environment), in the order of the file."""
        latest: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            if row.status in FINAL_STATUSES:
                latest.pop(row.identity, None)  # a repeated row moves to its new place
                latest[row.identity] = row
        return list(latest.values())

    def left_out(self) -> list[str]:
        """A sentence for each bad line."""
        return [f"line {line.number} is left out: {line.reason}" for line in self.bad]

    def interrupted(self) -> list[Row]:
        """Rows that were started and never finished: what ran when a sweep died."""
        open_rows: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            if row.status == STARTED:
                open_rows[row.identity] = row
            else:
                open_rows.pop(row.identity, None)
        return list(open_rows.values())


def read_store(path: Path) -> Contents:
    """Reads without a lock and changes nothing; for tools that only look. Raises StoreError."""
    try:
        return contents_of(read_regular(path))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def contents_of(data: bytes) -> Contents:
    """What the bytes of a store hold; nothing in them is an error, a line at worst a bad one."""
    rows: list[Row] = []
    bad: list[BadLine] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except ValueError as error:
            bad.append(BadLine(number, str(error), line))
    return Contents(rows, bad)


@dataclass
class ResultStore:
    """An open store. `contents` is what it held when it was opened, plus what was appended."""

    path: Path
    contents: Contents
    notes: list[str]  # what was found wrong on opening, for the user
    _descriptor: int
    _done: dict[tuple[str, str], Row] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_open: bool = True

    def append(self, record: Mapping[str, object]) -> Row:
        """Writes one row, on disk when this returns. Returns the row as a reader will see it."""
        line = encode({**record, "time": _now()})
        with self._lock:
            return self._append(line)

    def close(self) -> None:
        """From here on nothing is written, by whatever thread."""
        with self._lock:
            self._is_open = False
            os.close(self._descriptor)

    def _append(self, line: bytes) -> Row:
        if not self._is_open:
            raise StoreError(f"{self.path} was closed")
        try:
            before = os.fstat(self._descriptor).st_size
            if os.write(self._descriptor, line) != len(line):
                os.ftruncate(self._descriptor, before)  # or the next row would go on in this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        row = decode(line.rstrip(b"\n"))
        self.contents.rows.append(row)
        if row.status != STARTED:
            self._done[row.identity] = row
        return row

    def find(self, key: str, environment_fingerprint: str) -> Row | None:
        """The final row of a measurement, if it was made in this very environment."""
        return self._done.get((key, environment_fingerprint))


@contextmanager
def open_store(path: Path, *, resume: bool) -> Iterator[ResultStore]:
    """Locks and opens. A store that has rows is only opened to resume it. Raises StoreError."""
    _check_kind(path)
    with ExitStack() as opened:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(_beside(path, "lock"), _FLAGS | os.O_RDWR, 0o644)
            opened.callback(os.close, lock)
            store = _open_locked(path, lock, resume)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        opened.callback(store.close)
        yield store


# O_NONBLOCK: to open a FIFO in the place of a file beside the store must not wait.
_FLAGS = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _check_kind(path: Path) -> None:
    """A link is not followed: what it leads to may belong to another sweep. Another kind of file
    would be waited for, or read for ever."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise StoreError(f"cannot write {path}: {os.strerror(errno.EISDIR)}")
    if stat.S_ISLNK(mode):
        raise StoreError(f"cannot write {path}: it is a link; name the file itself")
    if not stat.S_ISREG(mode):
        raise StoreError(f"cannot write {path}: it is not a regular file")


def _open_locked(path: Path, lock: int, resume: bool) -> ResultStore:
    """Raises StoreError and OSError."""
    if not try_lock(lock):
        raise StoreError(
            f"{path} is being written by process {holder(lock)}: wait for it, or name another file"
        )
    contents, notes = _recover(path)
    if contents.rows and not resume:
        raise StoreError(
            f"{path} already has {len(contents.rows)} rows: add --resume to continue it, "
            "or name another file"
        )
    done = {row.identity: row for row in contents.finished()}
    descriptor = os.open(path, _FLAGS | os.O_WRONLY | os.O_APPEND, 0o644)
    try:
        os.fsync(descriptor)
        _sync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        raise
    return ResultStore(path, contents, notes, descriptor, done)


def _recover(path: Path) -> tuple[Contents, list[str]]:
    """Reads the store; moves what cannot be read aside, so that appending is safe again."""
    if not path.exists():
        return Contents([], []), []
    contents = read_store(path)
    notes = [
        f"{row.kernel} was running when the last sweep ended: it is measured again"
        for row in contents.interrupted()
    ]
    data = path.read_bytes()
    if not contents.bad and (not data or data.endswith(b"\n")):
        return contents, notes
    if contents.bad:
        aside = _beside(path, "corrupt")
        _keep_aside(aside, contents.bad)
        notes += [f"{path}, line {bad.number}: {bad.reason}" for bad in contents.bad]
        notes.append(f"{len(contents.bad)} unreadable line(s) moved to {aside}")
    data = b"".join(encode(row.to_json()) for row in contents.rows)
    write_atomically(path, data, mode=path.stat().st_mode & 0o777, durable=True)
    return Contents(contents.rows, []), notes


def _keep_aside(path: Path, bad: Sequence[BadLine]) -> None:
    descriptor = os.open(path, _FLAGS | os.O_WRONLY | os.O_APPEND, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        for line in bad:
            file.write(f"# {_now()}, line {line.number}: {line.reason}\n".encode())
            file.write(line.content + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
