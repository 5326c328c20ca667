"""The commands around machine code: output, formats, exit codes."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.tool import EXIT_INTERRUPTED, guarded
from flash_helpers.build.kernel_ptx import kernel_cubin
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.sass import counts_cli, diff_cli, extract_cli, history_cli
from flash_lab.sass.disassembler import SassError, find_cuobjdump
from flash_lab.sass.history import Build, Entry, append
from flash_lab.sass.steps import programs
from tests.previous import check_steps

from .test_listing import TEXT

EIGHT, NINE = get_kernel_configs("previous")[7:9]
Output = Callable[[], Any]


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return capsys.readouterr


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    path = tmp_path / "saved.sass"
    path.write_text(TEXT)
    return path


def test_counts_of_compiled_kernels(output: Output) -> None:
    assert counts_cli.main(["--compile", "--version", "8,9", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(output().out)))
    assert [row["kernel"] for row in rows] == [EIGHT.kernel_name(), NINE.kernel_name()]
    assert {row["matrix"] for row in rows} == {"128"}
    assert int(rows[0]["move"]) > 100 > int(rows[1]["move"])
    assert all(int(row["registers"]) > 128 and row["stack"] == "0" for row in rows)


def test_counts_of_a_cubin_and_a_listing(listing: Path, output: Output) -> None:
    cubin = str(kernel_cubin(EIGHT))
    assert counts_cli.main(["--library", cubin, "--by", "opcode", "--format", "json"]) == 0
    (row,) = json.loads(output().out)
    assert row["HMMA"] == 128 and row["kernel"] == EIGHT.kernel_name()
    wanted = ["--library", str(listing), "--match", "fir*", "--arch", "sm_90a"]
    assert counts_cli.main([*wanted, "--where", "kernel"]) == 0
    text = output().out
    assert "unknown" in text and "other" in text and "first" in text and "second" not in text


def test_extract(tmp_path: Path, listing: Path, output: Output) -> None:
    assert extract_cli.main(["--compile", "--version", "9"]) == 0
    assert output().out.startswith(f"// {NINE.kernel_name()} (sm_90a)")
    command = ["--compile", "--version", "8,9", "--out", str(tmp_path / "out"), "--ptx"]
    assert extract_cli.main(command) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        f"{c.kernel_name()}{suffix}" for c in (EIGHT, NINE) for suffix in (".sm_90a.sass", ".ptx")
    }
    assert extract_cli.main(["--library", str(listing)]) == 2
    assert "--out is needed" in output().err


def test_diff_of_two_kernels(output: Output) -> None:
    command = ["--compile", "--version", "8,9", "--format", "json"]
    assert diff_cli.main(command) == 0
    rows = {(row["what"], row["name"]): row for row in json.loads(output().out)}
    assert rows["class", "move"]["change"] < -100 and rows["class", "matrix"]["change"] == 0
    assert diff_cli.main([*command[:3], "--listing", "--color", "always"]) == 0
    assert "\033[31m-MOV R, R" in output().out
    assert diff_cli.main(["--compile", "--version", "8"]) == 2
    assert "two are compared" in output().err
    assert diff_cli.main(["--compile", "--version", "4,5"]) == 0
    assert "the same instructions in the same order, registers too" in output().out
    assert diff_cli.main(["--compile", "--version", "4,5", "--ptx"]) == 0
    lines = output().out.splitlines()
    moved = {sign: [x for x in lines if x.startswith(f"{sign}ldmatrix")] for sign in "+-"}
    assert len(moved["+"]) == len(moved["-"]) > 0  # as many as before, elsewhere


def test_diff_of_two_builds(tmp_path: Path, listing: Path, output: Output) -> None:
    grown = tmp_path / "grown.sass"
    extra = "        /*0068*/                   MOV R9, R9 ;    /* 0x0 */\n        /*0070*/"
    grown.write_text(TEXT.replace("        /*0070*/", extra))
    both = ["--old", str(listing), "--new", str(grown)]
    assert diff_cli.main(both) == 1
    captured = output()
    assert "regressed" in captured.out and "1 of 3 kernels have regressed" in captured.err
    assert diff_cli.main([*both, "--tolerance", "50"]) == 0
    assert diff_cli.main([*both[2:], *("--old", str(grown))]) == 0
    assert diff_cli.main(["--old", str(listing)]) == 2
    assert diff_cli.main([*both, "--match", "third"]) == 4
    assert "the nearest is" in output().err


def test_history(tmp_path: Path, output: Output) -> None:
    file = tmp_path / "history.jsonl"
    assert history_cli.main(["show", str(file)]) == 4
    record = ["record", str(file), "--compile", "--version", "8,9"]
    assert history_cli.main(record) == 0 and history_cli.main(record) == 0
    output()
    assert history_cli.main(["show", str(file), "--what", "loop", "--format", "json"]) == 0
    rows = json.loads(output().out)
    assert len(rows) == 2 and all(len(set(list(row.values())[2:])) == 1 for row in rows)
    spilling = Entry(EIGHT.kernel_name(), "sm_90a", 255, 8, 700, 610, 4, 2)
    append(file, Build("later", "2026-01-01 00:00", (spilling,)))
    assert history_cli.main(["show", str(file)]) == 1
    captured = output()
    assert "spills more: 0 -> 4" in captured.err
    assert [line.split()[-2] for line in captured.out.splitlines()[3:-1]] == ["255", "-"]
    file.write_text(file.read_text() + "{\n")
    assert history_cli.main(["show", str(file)]) == 2
    assert f"{file}:4 is not a recorded build" in output().err


def test_steps(output: Output) -> None:
    assert check_steps.main([]) == 0
    assert "15 of 15 steps are what they say (sm_90a)" in output().out


def test_a_claim_that_does_not_hold_is_1(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs("sm_90a")
    found[8] = found[7]  # step 9 with the code of step 8
    monkeypatch.setattr(check_steps, "programs", lambda *_, **__: found)
    assert check_steps.main([]) == 1
    assert "MOV+IMAD.MOV in the loop, ratio [0.0, 0.1]: 119 -> 119: DOES NOT HOLD" in output().out


def test_bad_input(tmp_path: Path, listing: Path, output: Output) -> None:
    cases = {
        ("--library", str(tmp_path / "absent.so")): (4, "does not exist"),
        ("--library", __file__): (4, "finds no machine code"),
        ("--library", str(listing), "--match", "third"): (4, "third is not among the 2 kernels"),
        ("--library", str(listing), "--arch", "sm_70"): (4, "no code for sm_70"),
        ("--compile",): (2, "needs --kernels or --version"),
        ("--compile", "--version", "99"): (2, "expected 1 to 16"),
        ("--kernels", "nosuch", "--library", str(listing)): (2, "is not valid"),
    }
    for command, (code, message) in cases.items():
        assert counts_cli.main(list(command)) == code, command
        assert message in output().err
    empty = tmp_path / "empty.sass"
    empty.write_text("nothing\n")
    assert counts_cli.main(["--library", str(empty)]) == 4


def test_without_a_disassembler_the_message_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    if Path("/usr/local/cuda/bin/cuobjdump").exists():
        pytest.skip("this machine has a toolkit in the usual place")
    with pytest.raises(SassError, match="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"):
        find_cuobjdump({"PATH": str(tmp_path)})
    with pytest.raises(SassError, match=str(tmp_path / "cuda" / "bin")):
        find_cuobjdump({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "cuda")})


def test_both_tools_must_be_in_one_folder(tmp_path: Path) -> None:
    real = find_cuobjdump()
    for folder, tools in (("half", ["cuobjdump"]), ("whole", ["cuobjdump", "nvdisasm"])):
        (tmp_path / folder / "bin").mkdir(parents=True)
        for tool in tools:
            shutil.copy(real.parent / tool, tmp_path / folder / "bin" / tool)
    whole = tmp_path / "whole" / "bin"
    environ = {"CUDA_HOME": str(tmp_path / "half"), "CUDA_PATH": str(whole.parent)}
    assert find_cuobjdump(environ) == whole / "cuobjdump"


def test_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(counts_cli, "work", interrupted)
    assert guarded("sass_counts.py", partial(counts_cli.main, [])) == EXIT_INTERRUPTED == 130
