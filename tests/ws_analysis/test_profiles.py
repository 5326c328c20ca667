"""Reports from profiles, in place of ncu a program that prints what one would."""

from __future__ import annotations

import json
import lzma
import shlex
import sys
from pathlib import Path

import pytest

from flash_lab.profiling import bottleneck_metrics as m
from flash_lab.ws_analysis import cli, profiles
from flash_lab.ws_analysis.words import words
from tests.ws_analysis.profile import KERNEL, TENSOR_BOUND, raw_csv

FAKE = Path(__file__).with_name("fake_ncu.py")
RAW = Path(__file__).parents[2] / "docs/results/raw"
NAME = ("--provider", "triton-ws-pp-fp16", "--n_ctx", "8192")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, found by the variable NCU."""
    program = tmp_path / "an ncu"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(str(FAKE))} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("NCU", str(program))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")  # in which 1.5 is 1,5
    return program


def report(path: Path, text: str, *more: str) -> int:
    path.write_text(text)
    return cli.main(["--mode", "ncu", "--report", str(path), *NAME, *more])


def test_a_report(ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path / "p.ncu-rep", raw_csv((KERNEL, TENSOR_BOUND))) == 0
    shown = capsys.readouterr().out
    for line in (
        "global load efficiency: n/a (no such instruction: TMA, or none at all)",
        "global store efficiency: 50.00 %",
        "L1 hit rate: 12.50 %",
        "L2 hit rate: 91.75 %",
        "shared-memory bank conflicts: 1000",
        "of shared-memory wavefronts: 0.0250 %",
        "tensor-core use: 88.40 %",
        "warp execution efficiency: 97.50 %",
        "issue slots used: 35.20 %",
        "instructions per cycle and SM: 1.41",
        "duration: 1.71 ms (under ncu)",
        "SM clock: 1500.00 MHz",
    ):
        assert f"  {line}\n" in shown, line
    stalls = shown.partition("## Stall reasons")[2].partition("##")[0].splitlines()
    assert stalls[2:4] == ["  barrier: 1.50 (75%)", "  long_scoreboard: 0.50 (25%)"]
    assert "## Bottleneck\ntensor-bound: " in shown
    assert KERNEL in shown
    assert "triton-ws-pp-fp16, N_CTX=8192" in shown
    (call,) = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert call[1:] == [
        "--import", str(tmp_path / "p.ncu-rep"), "--page", "raw", "--csv", "--print-units", "base",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hits", "busy"),
    [("ws-pp-8192", "92.58", 90), ("ws-pp-8192-full-set", "93.41", 91)],
)
def test_profiles_of_an_h200(
    name: str, hits: str, busy: int, ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ncu counted there: under ncu_analysis.sh, and by the seed's own `--set full`, which has
    fewer metrics."""
    (recorded,) = RAW.glob(f"*-h200-{name}.raw.csv.xz")
    page = lzma.decompress(recorded.read_bytes()).decode()
    assert report(tmp_path / "p.ncu-rep", page) == 0
    shown = capsys.readouterr().out
    assert f"  L2 hit rate: {hits} %\n" in shown
    assert "  duration: 1.44 ms (under ncu)\n" in shown
    verdict = f"tensor-bound: The tensor cores are busy for {busy} % of the time"
    assert f"## Bottleneck\n{verdict}" in shown


def test_a_report_in_chinese(ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path / "p.ncu-rep", raw_csv((KERNEL, TENSOR_BOUND)), "--lang", "zh") == 0
    shown = capsys.readouterr().out
    for heading in (
        "# 深度分析", "## 内存访问模式", "## 计算效率", "Global Memory Load效率",
        "L2 Cache命中率: 91.75 %", "Memory Bank Conflicts", "Tensor Core利用率: 88.40 %",
        "Warp执行效率", "## 瓶颈",
    ):  # fmt: skip
        assert heading in shown, heading


def test_what_ncu_did_not_measure_is_not_zero(
    ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = {name: value for name, value in TENSOR_BOUND.items() if name != m.TENSOR}
    lacking |= {"l1tex__t_sector_hit_rate.pct": ("n/a", "")}
    assert report(tmp_path / "p.ncu-rep", raw_csv((KERNEL, lacking))) == 0
    shown = capsys.readouterr().out
    assert "tensor-core use: n/a\n" in shown
    assert "L1 hit rate: n/a\n" in shown
    assert f"not known: {m.TENSOR} is absent" in shown


def test_the_longest_launch_is_the_kernel(
    ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper = TENSOR_BOUND | {"gpu__time_duration.sum": ("2,000", "ns")}
    text = raw_csv(("memset", helper), (KERNEL, TENSOR_BOUND), ("combine", helper))
    assert report(tmp_path / "p.ncu-rep", text) == 0
    assert f"\n{KERNEL}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no profile"),
        ("==PROF== nothing\n", "holds no kernel"),
        (raw_csv((KERNEL, TENSOR_BOUND)).replace('"Kernel Name",', ""), "has no column"),
    ],
)
def test_no_data(
    text: str, message: str, ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(tmp_path / "p.ncu-rep", text) == 4
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


def test_what_ncu_said_becomes_advice(
    ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    missing = ("--mode", "ncu", "--report", str(tmp_path / "absent.ncu-rep"), *NAME)
    assert cli.main([*missing, "--log", str(log)]) == 4
    said = capsys.readouterr().err
    assert "CAP_SYS_ADMIN" in said
    assert "there is no profile" in said
    assert cli.main([*missing, "--log", str(tmp_path / "absent.txt")]) == 4
    assert "cannot read" in capsys.readouterr().err


def test_a_run_that_was_wrong_has_no_report(
    ncu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("wrong: triton-ws-fp16\n==ERROR== The application returned an error code (1).\n")
    path = tmp_path / "p.ncu-rep"
    assert report(path, raw_csv((KERNEL, TENSOR_BOUND)), "--log", str(log)) == 1
    said = capsys.readouterr()
    assert "failed its check" in said.err
    assert said.out == ""


def test_without_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCU", str(tmp_path / "no such program"))
    assert report(tmp_path / "p.ncu-rep", raw_csv((KERNEL, TENSOR_BOUND))) == 4
    assert "is not a program that can be run" in capsys.readouterr().err


def test_profiles_beside_each_other(ncu: Path, tmp_path: Path) -> None:
    from flash_lab.ws_analysis.options import parse

    arguments = ["--mode", "analysis", "--ncu_results", str(tmp_path)]
    options = parse(arguments)
    lines, code = profiles.section(options, words("en"))
    assert (code, len(lines)) == (0, 1)
    (tmp_path / "ncu_triton-ws-fp16_8192.ncu-rep").write_text(raw_csv((KERNEL, TENSOR_BOUND)))
    (tmp_path / "ncu_fa2_128.ncu-rep").write_text("nothing")
    lines, code = profiles.section(options, words("en"))
    assert code == 3
    cells = [cell.strip() for cell in lines[0].splitlines()[3].strip("|").split("|")]
    assert cells == [
        "triton-ws-fp16, 8192", "88.40", "35.20", "91.75", "4.25", "1.71", "barrier",
        "tensor-bound",
    ]  # fmt: skip
    assert "ncu_fa2_128.ncu-rep holds no kernel" in lines[1]
