"""Every tool that writes files: an output that cannot be written ends it with 2 and one sentence,
before anything is measured; one that fails at the end does so too, and says where the data is."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flash_attention import tuning_table
from flash_helpers.base.tool import guarded
from flash_helpers.build import report_cli as build_report_cli
from flash_helpers.emulator.door import cli as emulator_cli
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench import autotune_cli, pt_cli, regimes, report_cli
from flash_lab.bench.records import encode
from flash_lab.bench.store import read_store
from flash_lab.profiling import cli as profiling_cli
from flash_lab.sass import extract_cli, history_cli
from flash_lab.steps_report import cli as steps_cli
from flash_lab.ws_analysis import cli as ws_cli
from tests.acceptance import cli as acceptance_cli
from tests.bench.report_rows import recorded_rows

ROOT = Path(__file__).resolve().parents[2]
BACKEND = "fake_backend:FakeBackend"
WS_BACKEND = "tests.ws_analysis.fake_backend:WsFakeBackend"
PROG = [config.short_form() for config in get_kernel_configs("prog")]
QUICK = ["--seq_lens", "512", "--num_repeats", "4"]
PT = ["--kernels", "prog", "--providers", "ours", "--target_noise", "0", "--no_ceilings", *QUICK]
TUNE = ["--kernels", "prog", "--no_build", "--no_ceilings", "--seq_lens", "512"]
TUNE += ["--dtypes", "fp16", "--final", "8"]
WS = ["--num_repeats", "4", "--target_noise", "0", "--n_ctx", "128", "--provider", "fa2"]
GATE = ["gate", "--rounds", "1", "--num_repeats", "8", "--n_kernels", "1"]
MEASURE = ["waves", "--measure", "--max_blocks", "2"]
EMULATOR = ["scale.ptx", "--grid", "1", "--block", "32"]

Main = Callable[[list[str]], int]


def with_backend(main: Callable[[list[str], str], int], backend: str = BACKEND) -> Main:
    return lambda argv: main(argv, backend)


# (tool, its main, arguments, the option, whether it names a folder)
CASES: list[tuple[str, Main, list[str], str, bool]] = [
    ("pt_bench", with_backend(pt_cli.main), PT, "--csv", False),
    ("pt_bench", with_backend(pt_cli.main), PT, "--json", False),
    ("pt_bench", with_backend(pt_cli.main), PT, "--out", False),
    ("autotune", with_backend(autotune_cli.main), TUNE, "--table", False),
    ("autotune", with_backend(autotune_cli.main), [*TUNE, "--no_table"], "--out", False),
    ("acceptance", with_backend(acceptance_cli.main), [*GATE, "--out", "g"], "--json", False),
    ("acceptance", with_backend(acceptance_cli.main), GATE, "--out", False),
    ("acceptance", with_backend(acceptance_cli.main),
     ["agreement", "--out", "a", *QUICK, "--kernels", "prog"], "--ncu_csv", False),
    ("report", report_cli.main, ["rows.jsonl"], "--out", False),
    ("report", report_cli.main, ["rows.jsonl", "--out", "page"], "--pngs", True),
    ("regimes", regimes.main, ["--seq_lens", "512"], "--out", False),
    ("bottleneck", profiling_cli.main, ["bottleneck", "--known"], "--save", False),
    ("waves", profiling_cli.main, MEASURE, "--out", True),
    ("ws", with_backend(ws_cli.main, WS_BACKEND), ["--mode", "benchmark", *WS], "--results", True),
    ("ws", with_backend(ws_cli.main, WS_BACKEND), ["--mode", "analysis", *WS], "--out", False),
    ("ws", with_backend(ws_cli.main, WS_BACKEND), ["--mode", "nvtx"], "--trace", False),
    ("build_report", build_report_cli.main, [], "--csv", False),
    ("extract_sass", extract_cli.main, ["--compile", "--kernels", "prog"], "--out", True),
    ("register_history", history_cli.main, ["record", "--version", "9", "--compile"], "", False),
    ("steps_report", steps_cli.main, [], "--out", True),
    ("emulator", emulator_cli.main, EMULATOR, "--csv", False),
]  # fmt: skip


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Backends that log what they check; nothing else can be measured or compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'py'}:{ROOT}:{ROOT / 'tests/bench'}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDACXX", "/nonexistent/nvcc")
    Path("rows.jsonl").write_bytes(b"".join(encode(row.to_json()) for row in recorded_rows()[:4]))


@pytest.mark.parametrize("bad", ["no folder", "of the other kind"])
@pytest.mark.parametrize(("tool", "main", "arguments", "option", "is_folder"), CASES)
def test_it_is_refused_before_anything_is_measured(
    tool: str, main: Main, arguments: list[str], option: str, is_folder: bool, bad: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Path("a file").touch()
    Path("a folder").mkdir()
    other_kind = "a file" if is_folder else "a folder"
    target = "/proc/none/x" if bad == "no folder" else other_kind
    given = [*arguments, option, target] if option else [*arguments, target]
    assert guarded(tool, lambda: main(given)) == 2
    captured = capsys.readouterr()
    (said,) = (captured.out + captured.err).splitlines()
    assert "error: " in said and target.removesuffix("/x") in said
    assert not (tmp_path / "log").exists()
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"a file", "a folder", "rows.jsonl", "cache", "a folder.lock"}


@pytest.mark.parametrize("option", ["--csv", "--json"])
@pytest.mark.parametrize(("fault", "code"), [("", 2), ("wrong but fast", 1)])
def test_pt_bench_on_a_full_disk(
    option: str, fault: str, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({PROG[0]: fault}))
    given = [*PT, "--out", "sweep.jsonl", option, "/dev/full"]
    assert guarded("pt_bench.py", lambda: pt_cli.main(given, BACKEND)) == code
    expected = "cannot write /dev/full: No space left on device; every row is in sweep.jsonl"
    assert expected in capsys.readouterr().err
    assert len(read_store(Path("sweep.jsonl")).finished()) == len(PROG)


def test_a_full_standard_output_does_not_lose_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("flash_lab.bench.progress.print", full, raising=False)
    given = [*PT, "--out", "sweep.jsonl"]
    assert guarded("pt_bench.py", lambda: pt_cli.main(given, BACKEND)) == 2
    said = capsys.readouterr().err
    assert "standard output: No space left" in said and "finished rows are in sweep.jsonl" in said
    assert len(read_store(Path("sweep.jsonl")).finished()) == len(PROG)


@pytest.mark.parametrize(("fault", "code"), [("", 2), ("wrong but fast", 1)])
def test_autotune_on_a_full_disk(
    fault: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("FAKE_FAULTS", json.dumps({PROG[0]: fault}))
    monkeypatch.setattr(tuning_table, "write_atomically", full)
    given = [*TUNE, "--out", "sweep.jsonl", "--table", "t.json"]
    assert guarded("autotune.py", lambda: autotune_cli.main(given, BACKEND)) == code
    said = capsys.readouterr().err
    assert "no table: cannot write t.json: No space left on device" in said
    assert "every row is in sweep.jsonl" in said
    assert not Path("t.json").exists()


def test_autotune_with_an_unsafe_cache_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    given = [*TUNE, "--out", "sweep.jsonl"]
    assert guarded("autotune.py", lambda: autotune_cli.main(given, BACKEND)) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "is writable by others" in said
    assert not (tmp_path / "log").exists() and not Path("sweep.jsonl").exists()
    assert guarded("autotune.py", lambda: autotune_cli.main([*given, "--no_table"], BACKEND)) == 0


PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
"""


@pytest.mark.parametrize("name", ["emulator", "ws"])
def test_other_tools_with_an_unsafe_cache(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 of the emulator would be an error in the kernel."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    Path("nothing.ptx").write_text(PTX)
    runs = {
        "emulator": lambda: emulator_cli.main(["nothing.ptx", "--grid", "1", "--block", "1"]),
        "ws": lambda: ws_cli.main(["--mode", "benchmark", "--n_ctx", "128"]),
    }
    assert guarded(name, runs[name]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "is writable by others" in said


def test_a_table_that_stays_locked_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flash_helpers.base.cache import CacheLockTimeout

    def locked(*_: object, **__: object) -> None:
        raise CacheLockTimeout("waited 300 s for t.json.lock, held by process 7")

    monkeypatch.setattr(tuning_table, "exclusive", locked)
    given = [*TUNE, "--out", "sweep.jsonl", "--table", "t.json"]
    assert guarded("autotune.py", lambda: autotune_cli.main(given, BACKEND)) == 2
    assert "held by process 7; every row is in sweep.jsonl" in capsys.readouterr().err


def test_one_file_for_two_outputs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = [*PT, "--out", "sweep.jsonl", "--csv", "sweep.jsonl"]
    assert guarded("pt_bench.py", lambda: pt_cli.main(given, BACKEND)) == 2
    assert "--out and --csv are both sweep.jsonl" in capsys.readouterr().err


def test_verdicts_and_pages_on_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    given = [*GATE, "--out", "gate.jsonl"]
    verdict = guarded("acceptance.py", lambda: acceptance_cli.main(given, BACKEND))
    again = ["gate", "--evaluate", "--out", "gate.jsonl", "--json", "/dev/full"]
    code = guarded("acceptance.py", lambda: acceptance_cli.main(again, BACKEND))
    assert (verdict, code) in ((0, 2), (1, 1))  # what is not within the bar stays so
    captured = capsys.readouterr()
    assert "cannot write /dev/full: No space left" in captured.err
    assert '"kind": "summary"' in captured.out
    pytest.importorskip("matplotlib")
    page = ["rows.jsonl", "--out", "/dev/full"]
    assert guarded("report.py", lambda: report_cli.main(page)) == 2
    assert capsys.readouterr().err == (
        "report.py: error: cannot write /dev/full: No space left on device\n"
    )


def test_ws_results_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("flash_helpers.base.outputs.write_atomically", full)
    given = ["--mode", "benchmark", *WS, "--out", "ws.jsonl"]
    assert guarded("ws", lambda: ws_cli.main(given, WS_BACKEND)) == 2
    shown = capsys.readouterr().out
    assert "benchmark.csv: No space left on device" in shown and "TFLOPS" in shown
