"""`python -m flash_attention doctor` and `cache`: a planted fault is a line that says what to do,
none ends the report, and only folders of our own are emptied."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.cache import UnsafeCacheError
from flash_helpers.compilers.errors import BuildError

torch = pytest.importorskip("torch")

from flash_attention.doctor import caches, kernels, machine  # noqa: E402
from flash_attention.doctor.cli import command, main  # noqa: E402
from flash_attention.doctor.records import Check, Row, State, examine  # noqa: E402
from flash_attention.interface import KernelNotBuiltError  # noqa: E402
from flash_attention.library import LIBRARY_VARIABLE, LibraryNotFoundError  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("flash_attention", "py", "tools")


def row(part: Any, name: str, section: str = "") -> Row:
    (found,) = [c for c in part.checks() if c.name == name and section in c.section]
    return examine(found)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a file in each folder, and a folder that is not ours."""
    folder = tmp_path / "cache"
    for name in (*caches.FOLDERS, "not_ours"):
        (folder / name / "inside").mkdir(parents=True, mode=0o700)
        (folder / name).chmod(0o700)
        (folder / name / "inside" / "file").write_bytes(bytes(100))
        (folder / name / "file.lock").write_bytes(bytes(20))
    folder.chmod(0o700)
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(folder))
    return folder


def files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def test_the_report_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    wrong = [r for r in report["rows"] if r["state"] == "wrong"]
    assert (code, report["wrong"]) == (bool(wrong), len(wrong))
    sections = {r["section"] for r in report["rows"]}
    assert sections == {
        "versions", "compilers", "GPU", "cache", "kernels", "tuning", "served by", "self-test"
    }  # fmt: skip
    (tested,) = [r for r in report["rows"] if r["section"] == "self-test"]
    assert tested["state"] == "ok" and "all 64 rows are right" in tested["text"]
    served = [r["text"] for r in report["rows"] if r["section"] == "served by"]
    assert len(served) >= 10
    if not torch.cuda.is_available():
        assert all(" family, emulated: fp16, fp16 causal, bf16" in text for text in served)


def test_many_faults_at_once(tmp_path: Path) -> None:
    broken = tmp_path / "_C.so"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    faults = {
        "CUDACXX": "/nowhere/nvcc",
        "CXX": "/nowhere/g++",
        "FLASH_ATTENTION_CACHE_DIR": str(shared),
        "FLASH_ATTENTION_JIT": "perhaps",
        "FLASH_ATTENTION_LIBRARY": str(broken),
        "FLASH_ATTENTION_TUNING": "/nowhere/table.json",
    }
    run = [sys.executable, "-m", "flash_attention", "doctor"]
    environment = os.environ | faults | {"PYTHONPATH": f"{ROOT / 'py'}:{ROOT}"}
    done, shown = (
        subprocess.run(
            [*run, *option], env=environment, capture_output=True, text=True, timeout=300
        )
        for option in (["--json"], [])
    )
    assert (done.returncode, done.stderr) == (shown.returncode, shown.stderr) == (1, "")
    rows = {(r["section"], r["name"]): r for r in json.loads(done.stdout)["rows"]}
    wrong = {subject: r for subject, r in rows.items() if r["state"] == "wrong"}
    expected = [
        ("cache", "place"), ("compilers", "C++"), ("compilers", "nvcc"), ("kernels", "build"),
        ("kernels", "first use"), ("self-test", "one call"), ("tuning", "named"),
        ("tuning", "user's"),
    ]  # fmt: skip
    assert [s for s in sorted(wrong) if s[0] != "served by"] == expected
    assert all(r["remedy"] for r in wrong.values())
    assert "chmod 700" in wrong["cache", "place"]["text"]
    lines = shown.stdout.splitlines()
    assert lines[-1] == f"{len(wrong)} wrong"
    assert sum("what to do:" in line for line in lines) == len(wrong)


def test_an_unknown_triton_release_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", "9.9.0")
    found = row(machine, "triton")
    assert found.state is State.NOTE and "9.9.0 is installed" in found.text


def test_what_is_missing_and_not_needed_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise BuildError("none\n  was found")

    for name in ("find_nvcc", "find_host_compiler", "find_nvrtc"):
        monkeypatch.setattr(machine, name, nothing)
    for name in ("CUDACXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    found = [row(machine, name) for name in ("nvcc", "C++", "nvrtc")]
    assert [(r.state, r.text) for r in found] == [(State.NOTE, "none was found")] * 3


def test_no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise LibraryNotFoundError("flash_attention._C is not built")

    monkeypatch.setattr(kernels, "library_info", nothing)
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    for on_gpu, state in ((False, State.NOTE), (True, State.WRONG)):
        with monkeypatch.context() as planted:
            planted.setattr(torch.cuda, "is_available", lambda there=on_gpu: there)
            found = row(kernels, "build")
        assert found.state is state and "is not built" in found.text


def test_a_gpu_that_torch_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for present, state in (([], State.NOTE), ([(9, 0)], State.WRONG)):
        with monkeypatch.context() as planted:
            planted.setattr(machine, "present_gpus", lambda there=present: there)
            assert row(machine, "device").state is state


def test_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "flash_attn_func", lambda q, k, v: q)
    found = row(kernels, "one call")
    assert found.state is State.WRONG and "64 of 64 rows are wrong" in found.text


def test_a_build_of_few_kernels_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KernelNotBuiltError("build with KERNELS=tune")

    monkeypatch.setattr("flash_attention.heads.kernels", refuse)
    found = row(kernels, "forward 64")
    assert (found.state, found.text) == (State.NOTE, "build with KERNELS=tune")


def test_a_damaged_table(cache: Path) -> None:
    (cache / "tuning" / "tuning.json").write_text("{")
    found = row(kernels, "user's")
    assert found.state is State.WRONG and "is not JSON" in found.text


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert row(caches, "place").state is State.WRONG
    assert row(caches, "jit").text == "0 files, 0 bytes"


def test_no_check_ends_the_report() -> None:
    def fail() -> str:
        raise KeyError("x")

    found = examine(Check("section", "name", fail, "try again"))
    assert found == Row("section", "name", State.WRONG, "KeyError: 'x'", "try again")


def test_the_cache_is_listed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{cache / name}: 2 files, 120 bytes" for name in caches.FOLDERS]
    assert files(cache) == 2 * (len(caches.FOLDERS) + 1)


def test_clearing_keeps_measurements_and_what_is_not_ours(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = cache.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (cache / "jit" / "link").symlink_to(outside)
    assert main(["cache", "--clear"]) == 0
    kept = ("not_ours", "tuning")
    assert {path.name for path in cache.iterdir() if files(path)} == set(kept)
    assert (outside / "file").read_text() == "kept"
    printed = capsys.readouterr().out
    assert f"{cache / 'ptx'}: removed 2 files, 120 bytes" in printed
    assert not any(str(cache / name) in printed for name in kept)
    assert main(["cache", "--clear", "tuning"]) == 0
    assert files(cache / "tuning") == 0 and files(cache / "not_ours") == 2


def test_a_folder_of_somebody_else_is_not_emptied(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "ptx").rename(cache.parent / "ptx")
    (cache / "ptx").symlink_to(cache.parent / "ptx")
    (cache / "sass").chmod(0o777)
    for name in ("ptx", "sass"):
        with pytest.raises(UnsafeCacheError):
            caches.clear(cache / name)
        assert files((cache / name).resolve()) == 2
    monkeypatch.setattr(sys, "argv", ["flash-attention", "cache", "--clear", "ptx"])
    assert command() == 2
    assert "is not a directory (or is a link)" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["docter"], ["doctor", "x"], ["cache", "--clear", "home"]])
def test_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2


def test_every_folder_of_the_cache_is_known() -> None:
    """Those that the sources make, and those that docs/support.md lists."""
    made = set()
    for path in (path for part in PRODUCT for path in (ROOT / part).rglob("*.py")):
        text = path.read_text()
        for argument in re.findall(r"\bcache_dir\(([^)*:]+)\)", text):
            found = re.search(rf'^{argument} = "(\w+)"$', text, re.MULTILINE)
            made.add(found[1] if found else argument.strip('"'))
    (compiler,) = [name for name in caches.FOLDERS if name.startswith("nvcc-")]
    assert made | {compiler} == set(caches.FOLDERS)
    page = (ROOT / "docs" / "support.md").read_text()
    assert set(re.findall(r"^\| … `/([\w.-]+)/` \|", page, re.MULTILINE)) == set(caches.FOLDERS)
