"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.plain_file import UnsafeFileError


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_content_and_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new\0", mode=mode)
        assert reader.read() == b"old"  # it is another file
    assert path.read_bytes() == b"new\0"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_to_last_is_on_the_disk_before_it_has_the_name(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def recorded(name: str) -> None:
        original = getattr(os, name)

        def call(*arguments: object) -> None:
            calls.append(name)
            original(*arguments)

        monkeypatch.setattr(os, name, call)

    recorded("fsync")
    recorded("replace")
    write_atomically(tmp_path / "file", b"x", durable=durable)
    assert calls == (["fsync"] if durable else []) + ["replace"]


def test_a_failure_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "absent" / "file", b"new")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"the only copy")
    path = tmp_path / "file"
    path.symlink_to("victim")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and not path.is_symlink()
    assert (tmp_path / "victim").read_bytes() == b"the only copy"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(UnsafeFileError, match="it is a FIFO"):
        write_atomically(fifo, b"new")
    assert fifo.is_fifo()
    with pytest.raises(UnsafeFileError, match="it is a directory"):
        write_atomically(tmp_path, b"new")
    assert [child.name for child in tmp_path.iterdir()] == ["fifo"]
