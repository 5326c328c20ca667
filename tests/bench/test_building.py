"""Measuring while the rest compiles, with a build that a test controls: the order of things."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench import building
from flash_lab.bench.autotune_cli import main
from flash_lab.bench.building import Build
from flash_lab.bench.store import read_store

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"
FP16 = [c.short_form() for c in get_kernel_configs("128,64") if c.dtype is DType.FP16]

# Says what its parts will be, finishes the first, and the others when the store has rows of it.
FAKE_BUILD = """
import json, os, sys, time
from pathlib import Path
folder, listed, store = Path({folder!r}), Path(sys.argv[1]), Path({store!r})
print("building", os.environ["KERNELS"], flush=True)
parts = {parts!r}
items = [dict(library=str(folder / f"part{{i}}.so"), kernels=k) for i, k in enumerate(parts)]
listed.write_text(json.dumps(items))
Path(items[0]["library"]).touch()
for _ in range(15_000):
    text = store.read_text() if store.is_file() else ""
    if text.count('"status":"ok"') >= {wait_for}:
        break
    time.sleep(0.02)
else:
    sys.exit("nothing was measured while this ran")
print("{last_word}", flush=True)
sys.exit({code})
"""


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr("flash_lab.bench.session.repository_root", lambda: tmp_path)
    monkeypatch.delenv("FLASH_ATTENTION_LIBRARY", raising=False)


def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
    script = tmp_path / "fake_build.py"
    halves = [FP16[::2], FP16[1::2]]
    script.write_text(
        FAKE_BUILD.format(
            folder=str(tmp_path), store=str(tmp_path / "rows.jsonl"), parts=halves, code=code,
            wait_for=len(halves[0]), last_word="error: planted" if code else "done",
        )
    )  # fmt: skip

    def command(n_parts: int, listed_in: Path) -> list[str]:
        return [sys.executable, str(script), str(listed_in), str(n_parts)]

    monkeypatch.setattr(building, "build_command", command)


def tune(tmp_path: Path) -> int:
    arguments = ["--kernels", "128,64", "--dtypes", "fp16", "--seq_lens", "512", "--no_ceilings"]
    files = ["--out", str(tmp_path / "rows.jsonl"), "--table", str(tmp_path / "table.json")]
    return main([*arguments, *files], BACKEND)


def test_a_part_is_measured_while_the_rest_compiles_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, monkeypatch)
    assert tune(tmp_path) == 0
    half = len(FP16[::2])
    assert f"{half} rows of {half} kernels, while the others compile" in capsys.readouterr().out
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == f"library {tmp_path / 'part0.so'}"
    assert sum(line.startswith("library") for line in lines) == 1  # the rest with the whole build
    coarse = [
        row.kernel
        for row in read_store(tmp_path / "rows.jsonl").rows
        if row.status == "ok" and row.stage == "coarse"
    ]
    assert set(coarse[:half]) == set(FP16[::2]) and sorted(coarse) == sorted(FP16)
    (log,) = (tmp_path / "build/bench").glob("autotune-build-*.log")
    assert log.read_text() == "building 128,64\ndone\n"


def test_a_build_that_fails_late_ends_the_tuning_and_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, monkeypatch, code=1)
    assert tune(tmp_path) == 2
    error = capsys.readouterr().err
    assert "error: planted" in error and "the build ended with code 1" in error
    assert len(read_store(tmp_path / "rows.jsonl").finished()) == len(FP16[::2])
    assert not (tmp_path / "table.json").exists()


def test_leaving_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch)
    with Build("128,64", 2, tmp_path / "log.txt") as build:
        part = next(build.parts())
        assert part.kernels == frozenset(FP16[::2])
        process = build.process
        assert process is not None and process.poll() is None
    assert process.returncode == -15


def test_a_build_of_nothing_new_is_not_measured_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(n_parts: int, listed_in: Path) -> list[str]:
        items = [{"library": str(tmp_path / "log.txt"), "kernels": FP16}] * n_parts
        code = f"open({str(listed_in)!r}, 'w').write({json.dumps(items)!r})"
        return [sys.executable, "-c", code]

    monkeypatch.setattr(building, "build_command", command)
    with Build("128,64", 2, tmp_path / "log.txt") as build:
        assert build.finish() == ""
        assert list(build.parts()) == []


def test_a_build_of_several_words_and_one_without_sources_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--kernels", "tune", "--kernels", "d64"], BACKEND)
    assert "a build has one KERNELS word" in capsys.readouterr().err
    monkeypatch.setattr(building, "repository_root", lambda: None)
    with pytest.raises(SystemExit, match="2"):
        main(["--kernels", "tune"], BACKEND)
    assert "an installed package cannot be rebuilt: use --no_build" in capsys.readouterr().err


def test_the_real_build_takes_this_command(tmp_path: Path) -> None:
    """A word that is none fails before anything is compiled, and says so through the log."""
    with Build("tume", 2, tmp_path / "log.txt") as build:
        assert list(build.parts()) == []
        problem = build.finish()
    assert "KERNELS 'tume' is not a selection of kernels" in problem and "code 1" in problem
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 1
