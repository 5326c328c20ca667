"""Outputs that a user names: what is refused before any work, and what a failed write leaves."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from flash_helpers.base.outputs import (
    OutputError,
    append_output,
    check_outputs,
    write_output,
    write_outputs,
)


def test_what_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    old, link = tmp_path / "old.csv", tmp_path / "link.csv"
    old.write_text("old")
    link.symlink_to(tmp_path / "not yet.csv")
    before = sorted(tmp_path.iterdir())
    check_outputs(
        {"--a": old, "--b": tmp_path / "new", "--c": link, "--d": None, "--e": Path(os.devnull)},
        {"--f": tmp_path / "deep" / "er", "--g": tmp_path, "--h": None},
    )  # fmt: skip
    assert sorted(tmp_path.iterdir()) == before and old.read_text() == "old"


def bad_targets(folder: Path) -> dict[str, Path]:
    (folder / "file").touch()
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "none" / "x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return {
        "there is no folder": folder / "none" / "x.csv",
        "it is a folder": folder,
        "Not a directory": folder / "file" / "x.csv",
        "Too many levels": folder / "loop",
        "there is no folder ": folder / "dangling",
        "neither a file nor a pipe": folder / "socket",
        "File name too long": folder / ("x" * 300),
        "/proc/": Path("/proc/none"),
    }


@pytest.mark.parametrize("number", range(8))
def test_what_cannot_be_written_is_refused_by_its_option(number: int, tmp_path: Path) -> None:
    words, path = list(bad_targets(tmp_path).items())[number]
    with pytest.raises(OutputError) as caught:
        check_outputs({"--csv": path})
    said = str(caught.value)
    assert said.startswith("--csv: cannot write ") and words in said and "\n" not in said
    with pytest.raises(OutputError):
        write_output(path, "x")


def test_folders_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deep", Path("/proc/none/deep")):
        with pytest.raises(OutputError, match="--results: cannot write"):
            check_outputs({}, {"--results": path})


def test_a_full_disk_is_seen_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(OutputError, match="No space left"):
        check_outputs({"--csv": tmp_path / "new.csv"})


def test_two_options_may_not_name_one_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "x")
    with pytest.raises(OutputError, match="--out and --csv are both"):
        check_outputs({"--out": tmp_path / "x", "--csv": tmp_path / "link"})
    check_outputs({"--out": Path(os.devnull), "--csv": Path(os.devnull)})


def test_an_existing_file_keeps_mode_and_link_and_a_new_one_has_the_users(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.touch()
    old.chmod(0o640)
    link.symlink_to(old)
    write_output(link, "text")
    assert link.is_symlink() and old.read_text() == "text"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "new", b"\0")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    problems = write_outputs({path: lambda: "new", Path(os.devnull): lambda: "new"})
    assert problems == [f"cannot write {path}: No space left on device"]
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_devices_and_pipes_are_written_to_and_never_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OutputError, match="cannot write /dev/full: No space left"):
        write_output(Path("/dev/full"), "x")
    with pytest.raises(OutputError, match="cannot write /dev/full: No space left"):
        append_output(Path("/dev/full"), "x")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_outputs({"--csv": pipe})
    with pytest.raises(OutputError, match="nobody reads from this pipe"):
        write_output(pipe, "x")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    taken: list[bytes] = []
    thread = threading.Thread(target=lambda: taken.append(os.read(reader, 100)))
    write_output(pipe, "through a pipe")
    thread.start()
    thread.join(timeout=60)
    os.close(reader)
    assert taken == [b"through a pipe"]
    write_output(Path("/dev/stdout"), "shown\n")
    assert capsys.readouterr().out == "shown\n"


def test_a_line_is_appended_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    append_output(path, "first\n")
    write, calls = os.write, 0

    def full_after_three_bytes(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:3])

    monkeypatch.setattr(os, "write", full_after_three_bytes)
    with pytest.raises(OutputError, match="No space left"):
        append_output(path, "second\n")
    assert path.read_text() == "first\n"
