"""Names that others can foresee: only a regular file of that one name is opened or locked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_helpers.base.cache import exclusive
from flash_helpers.base.plain_file import UnsafeFileError, open_plain, refuse_special

VICTIM = b"the only copy\n"
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


# What somebody can have put under the name, and what the refusal calls it.
PLANTED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "link": (lambda path, victim: path.symlink_to(victim), "a symbolic link"),
    "dangling link": (lambda path, victim: path.symlink_to("nowhere"), "a symbolic link"),
    "hard link": (lambda path, victim: path.hardlink_to(victim), "a hard link"),
    "FIFO": (lambda path, victim: os.mkfifo(path), "a FIFO"),
    "socket": (lambda path, victim: _socket(path), "a socket"),
    "folder": (lambda path, victim: path.mkdir(), "a directory"),
}


@pytest.fixture(params=PLANTED)
def planted(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """(a path, what lies there); beside it `victim`. Relative: a socket's name must be short."""
    monkeypatch.chdir(tmp_path)
    Path("victim").write_bytes(VICTIM)
    plant, kind = PLANTED[request.param]
    plant(Path("table.lock"), Path("victim"))
    return Path("table.lock"), kind


def test_what_is_no_file_of_its_own_is_refused(planted: tuple[Path, str]) -> None:
    path, kind = planted
    for flags in (FLAGS, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_APPEND):
        with pytest.raises(UnsafeFileError, match=kind) as caught:
            open_plain(path, flags)
        assert caught.value.filename == str(path) and caught.value.strerror
    assert Path("victim").read_bytes() == VICTIM and not Path("nowhere").exists()


def test_no_lock_is_written_through_it(planted: tuple[Path, str]) -> None:
    with pytest.raises(UnsafeFileError, match=planted[1]), exclusive(Path("table")):
        pass
    assert Path("victim").read_bytes() == VICTIM and not Path("nowhere").exists()


def test_a_device_is_refused() -> None:
    with pytest.raises(UnsafeFileError, match="a device"):
        open_plain(Path(os.devnull), FLAGS)
    with pytest.raises(UnsafeFileError, match="a device"):
        refuse_special(Path(os.devnull))


def test_a_file_of_its_own_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in (b"first, longer", b"second"):
        descriptor = open_plain(path, FLAGS)
        os.write(descriptor, text)
        os.close(descriptor)
        assert path.read_bytes() == text
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "absent", os.O_WRONLY)
    with pytest.raises(NotADirectoryError):
        open_plain(path / "below", FLAGS)


def test_what_a_link_leads_to_counts_where_nothing_is_written_through_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to a fifo").symlink_to("fifo")
    (tmp_path / "to a file").symlink_to("file")
    refuse_special(tmp_path / "to a file")  # which is not there yet
    (tmp_path / "file").write_text("")
    refuse_special(tmp_path / "to a file")
    with pytest.raises(UnsafeFileError, match="a FIFO"):
        refuse_special(tmp_path / "to a fifo")
