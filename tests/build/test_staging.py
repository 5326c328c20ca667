"""Content decides what is new; the lock ends with its holder; objects are complete or absent."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flash_helpers.build import driver
from flash_helpers.build.lock import build_lock
from flash_helpers.build.staging import content_hash, read_sources, stage
from flash_helpers.compilers.errors import BuildError

PY = Path(__file__).resolve().parents[2] / "py"
LAUNCHER = PY / "flash_helpers" / "build" / "record_compile.sh"


def test_staging_writes_what_differs_and_deletes_what_is_gone(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "include" / "deep").mkdir(parents=True)
    header, other = source / "include" / "a.h", source / "include" / "deep" / "b.cuh"
    header.write_text("int a;\n")
    other.write_text("int b;\n")
    (source / "include" / "notes.txt").write_text("not a source\n")

    def run() -> tuple[tuple[str, ...], tuple[str, ...]]:
        changes = stage(read_sources(source, ["include"]), copy)
        return changes.written, changes.deleted

    assert run() == (("include/a.h", "include/deep/b.cuh"), ())
    before = (copy / "include" / "a.h").stat().st_mtime_ns
    header.touch()
    assert run() == ((), ())
    assert (copy / "include" / "a.h").stat().st_mtime_ns == before

    header.write_text("int c;\n")
    os.utime(header, (1, 1))  # as restored from an archive: different, and older than its object
    assert run() == (("include/a.h",), ())
    assert (copy / "include" / "a.h").stat().st_mtime_ns > before

    other.unlink()
    assert run() == ((), ("include/deep/b.cuh",))
    assert not (copy / "include" / "notes.txt").exists()


def test_a_copy_names_its_original(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" \\ folder'
    folder.mkdir()
    (folder / "x.cpp").write_text(
        'const char* file = __FILE__; int line = __LINE__;\n#error "here"\n'
    )
    stage(read_sources(tmp_path, [folder.name]), tmp_path / "copy")
    copy = tmp_path / "copy" / folder.name / "x.cpp"
    done = subprocess.run(["g++", "-fsyntax-only", copy], capture_output=True, text=True)
    escaped = str(folder / "x.cpp")
    assert f"{escaped}:2:2: error: #error" in done.stderr


def test_a_source_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.h").write_bytes(b"// \xe4\n")
    with pytest.raises(BuildError, match=r"a/x\.h is not UTF-8 \(at byte 3\)"):
        read_sources(tmp_path, ["a"])


def test_the_hash_separates_names_from_contents() -> None:
    assert content_hash({"a": "bc"}) != content_hash({"ab": "c"})
    assert content_hash({"a": "1", "b": "2"}) == content_hash({"b": "2", "a": "1"})


HOLD = """
import sys, time
from pathlib import Path
from flash_helpers.build.lock import build_lock
with build_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(3600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PY)},
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_killed_holder_leaves_no_lock(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    holder = hold(tmp_path / "lock")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with build_lock(tmp_path / "lock"):
        assert capfd.readouterr().err == "", "it waited"


def test_a_lock_file_that_is_deleted_while_a_build_waits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it waited for is not the lock that the next build takes."""
    path = tmp_path / "build" / "lock"
    held, done = threading.Event(), threading.Event()

    def second() -> None:
        with build_lock(path):
            held.set()
            done.wait()

    with build_lock(path):
        thread = threading.Thread(target=second)
        thread.start()
        while "waiting for process" not in capfd.readouterr().err:
            time.sleep(0.01)
        shutil.rmtree(path.parent)
    held.wait()
    third = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(third)
    done.set()
    thread.join()


def test_who_waits_names_the_holder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    holder = hold(tmp_path / "lock")
    waiter = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PY)},
    )
    assert waiter.stderr is not None and waiter.stdout is not None
    assert f"waiting for process {holder.pid}" in waiter.stderr.readline()
    holder.kill()
    holder.wait()
    assert waiter.stdout.readline() == "held\n"
    waiter.kill()
    waiter.wait()


def compile_with(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Runs the launcher with a compiler made of this shell text; $out is what it shall write."""
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor out in "$@"; do :; done\n' + body)
    compiler.chmod(0o755)
    target = tmp_path / "an object.o"
    command = ["/bin/sh", str(LAUNCHER), str(compiler), "-c", "a b.cu", "-o", str(target)]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_object_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "an object.o"
    done = compile_with(
        tmp_path,
        '[ "$2" = "a b.cu" ] || exit 9\n'
        'echo half >"$out"\n'
        f'[ ! -e "{target}" ] || exit 8\n'
        "echo 'ptxas info    : Used 8 registers' >&2\n"
        "echo 'k.cu(1): warning: of interest' >&2\n",
    )
    assert (done.returncode, target.read_text()) == (0, "half\n")
    assert done.stderr == "k.cu(1): warning: of interest\n", (
        "warnings are shown, statistics are not"
    )
    log = (tmp_path / "an object.o.log").read_text()
    assert log.startswith("compile-centiseconds ") and "Used 8 registers" in log
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "an object.o",
        "an object.o.log",
        "compiler",
    ]


def test_a_failed_compile_leaves_no_object(tmp_path: Path) -> None:
    done = compile_with(tmp_path, 'echo half >"$out"; echo "error: planted" >&2; exit 3\n')
    assert (done.returncode, done.stderr) == (3, "error: planted\n")
    assert [p.name for p in tmp_path.iterdir()] == ["compiler"]


@pytest.mark.parametrize("number", ["C7510", "C7514", "C7517"])
def test_serialised_wgmma_fails_the_build(tmp_path: Path, number: str) -> None:
    advice = f"ptxas info    : ({number}) Potential Performance Loss: wgmma.mma_async instructions"
    done = compile_with(tmp_path, f'echo x >"$out"; echo "{advice}" >&2\n')
    assert done.returncode == 1 and number in done.stderr
    assert not (tmp_path / "an object.o").exists()


def test_errors_of_the_file_system_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = tmp_path / "_C.so"
    extension.write_bytes(b"new")
    (tmp_path / "package").write_text("a file where a folder should be")
    with pytest.raises(BuildError, match=r"^cannot write \S+_C\.so: \w[^\n]*$"):
        driver.publish(extension, tmp_path / "package")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "flash_attention"
    target.mkdir()
    (target / "_C.so").write_bytes(b"old")
    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(BuildError, match="No space left on device"):
        driver.publish(extension, target)
    assert [(p.name, p.read_bytes()) for p in target.iterdir()] == [("_C.so", b"old")]
