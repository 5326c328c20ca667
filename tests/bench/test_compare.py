"""The gate: intervals against scipy, verdicts, exit codes, and simulations on recorded noise."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flash_lab.bench.compare_cli import main
from flash_lab.bench.comparison import Comparison, Rules, compare_runs, halves, judge
from flash_lab.bench.records import encode, row_key
from flash_lab.bench.row import Json, Row
from flash_lab.bench.runs import Run, load_run, make_run, observations
from flash_lab.bench.significance import (
    Shift,
    critical_value,
    p_faster,
    p_faster_without_scipy,
    shift,
)

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "docs/results/raw/2026-11-20-h200-tune-d128.json"


@pytest.mark.parametrize(
    ("n", "m", "alpha"), [(5, 7, 0.05), (8, 8, 0.01), (12, 10, 0.001), (12, 12, 0.2), (4, 4, 0.01)]
)
def test_the_interval_excludes_one_where_mann_whitney_rejects(
    n: int, m: int, alpha: float, seed: int
) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    chance = random.Random(seed)
    for _ in range(60):
        base = [chance.lognormvariate(0, 0.02) for _ in range(n)]
        new = [chance.lognormvariate(0.02, 0.02) for _ in range(m)]
        p = scipy_stats.mannwhitneyu(base, new, method="exact").pvalue
        found = shift(base, new, alpha)
        assert (found.low > 1 or found.high < 1) == (p <= alpha)
        assert found.low <= found.estimate <= found.high


@pytest.mark.parametrize(("n", "m"), [(5, 7), (24, 24), (70, 30)])
def test_the_test_between_two_kernels_is_scipys(n: int, m: int, seed: int) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    chance = random.Random(seed)
    for _ in range(20):
        fast = [chance.lognormvariate(0, 0.02) for _ in range(n)]
        slow = [chance.lognormvariate(0.005, 0.02) for _ in range(m)]
        method = "exact" if n <= 60 else "asymptotic"
        expected = scipy_stats.mannwhitneyu(fast, slow, alternative="less", method=method).pvalue
        assert p_faster_without_scipy(fast, slow) == pytest.approx(expected, rel=1e-6)
        assert p_faster(fast, slow) == pytest.approx(expected, rel=0.2, abs=1e-3)


def test_too_few_observations_give_no_interval_and_many_use_the_normal_distribution() -> None:
    found = shift([1.0] * 4, [2.0] * 4, 0.01)
    assert (found.low, found.high) == (0.0, math.inf) and found.estimate == pytest.approx(2.0)
    exact, approximate = critical_value(60, 60, 1e-3), critical_value(61, 61, 1e-3)
    assert exact < approximate < exact * 1.06
    with pytest.raises(ValueError, match="one side has no observation"):
        shift([], [1.0], 0.01)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.995, 1.005, "same"), (1.001, 1.009, "same"), (1.001, 1.02, "slower"),
        (0.9, 0.99, "faster"), (0.98, 1.005, "ambiguous"), (0.0, math.inf, "ambiguous"),
    ],
)  # fmt: skip
def test_verdicts(low: float, high: float, verdict: str) -> None:
    assert judge(Shift(1.0, low, high), Rules()) == verdict


def test_an_anchor_takes_the_common_drift_away_and_adds_its_doubt() -> None:
    found = Shift(1.08, 1.05, 1.11).against(Shift(1.03, 1.02, 1.04))
    assert found.estimate == pytest.approx(1.08 / 1.03)
    assert 1.05 / 1.04 < found.low < 1.05 / 1.03
    assert Shift(1.1, 0.0, math.inf).against(Shift(1.0, 0.9, 1.1)).low == 0.0


def test_a_burst_is_one_observation() -> None:
    """Two slow bursts of four are two observations, not eight: that is no proof."""
    rows = [
        make_row("a", [first] * 4 + [second] * 4 + [third] * 4, bursts=[4, 4, 4])
        for first, second, third in ((1.0, 1.01, 0.99), (1.05, 1.06, 1.04))
    ]
    base, new = (make_run("simulated", [Row.from_json(row)], []) for row in rows)
    (measurement,) = base.measured.values()
    assert observations(measurement) == pytest.approx([1.0, 1.01, 0.99])
    (line,) = compare_runs(base, new, Rules()).lines
    assert line.verdict == "ambiguous" and line.shift.estimate == pytest.approx(1.05, abs=1e-3)


# Simulations: what a burst deviates by comes from the H200, at its power limit and below.


@cache
def recorded_noise(seq_len: int) -> list[float]:
    """Means of recorded bursts over the mean of their row, of all kernels at this length; widened
    by what four bursts show too little around their own mean."""
    run = load_run(RECORDED)
    found = []
    for (problem, _), m in run.measured.items():
        if problem.seqlen_q == seq_len:
            middle = statistics.fmean(map(statistics.fmean, m.bursts))
            widened = math.sqrt(len(m.bursts) / (len(m.bursts) - 1))
            found += [(statistics.fmean(burst) / middle) ** widened for burst in m.bursts]
    assert len(found) > 300
    return found


LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def simulated(
    chance: random.Random,
    factor: Callable[[str, int], float] = lambda kernel, seq_len: 1.0,
    drift: float = 0.0,
    n_bursts: int = 24,
    lengths: tuple[int, ...] = LENGTHS,
) -> Run:
    """A run of ten kernels and a reference. `drift` moves everything at a length together."""
    rows: list[Json] = []
    for seq_len in lengths:
        together = math.exp(chance.gauss(0, drift))
        noise = recorded_noise(seq_len)
        for i in range(11):
            kernel = "fa2" if i == 0 else f"kernel {i}"
            n = 3 * n_bursts if i == 0 else n_bursts  # a reference runs in every group
            ms = (1 + 0.1 * i) * factor(kernel, seq_len) * together
            samples = [ms * deviation for deviation in chance.choices(noise, k=n)]
            rows.append(make_row(kernel, samples, seq_len))
    return make_run("simulated", map(Row.from_json, rows), [])


def make_row(kernel: str, samples: list[float], seq_len: int = 1024, **more: Any) -> Json:
    shape = {
        "dtype": "FP16", "d_head": 128, "seq_len": seq_len, "batch": 16, "n_heads": 16,
        "n_kv_heads": 16, "causal": False, "seed": 1,
    }  # fmt: skip
    return {
        "status": "ok", "provider": "fa2" if kernel == "fa2" else "ours", "kernel": kernel,
        "key": row_key(kernel, shape, {}), "shape": shape, "samples_ms": samples,
        "bursts": [1] * len(samples), "environment": {"gpu": "H200"}, "error": "",
        "environment_fingerprint": "e", "policy": {"cold_l2": True}, **more,
    }  # fmt: skip


def slow_seven(kernel: str, seq_len: int) -> float:
    return 1.05 if (kernel, seq_len) == ("kernel 7", 4096) else 1.0


@pytest.mark.parametrize(("rules", "drift"), [(Rules(), 0.0), (Rules(anchored=True), 0.015)])
def test_twenty_runs_of_the_same_build_show_no_regression(
    rules: Rules, drift: float, seed: int
) -> None:
    """But one table of 500, as the rules say: one of twenty may."""
    chance, alarms = random.Random(seed), 0
    for _ in range(20):
        runs = [simulated(chance, drift=drift) for _ in range(2)]
        alarms += bool(compare_runs(runs[0], runs[1], rules).regressions())
    assert alarms <= 1


@pytest.mark.parametrize(("rules", "drift"), [(Rules(), 0.0), (Rules(anchored=True), 0.015)])
def test_a_kernel_that_is_five_percent_slower_is_found_twenty_times_of_twenty(
    rules: Rules, drift: float, seed: int
) -> None:
    """At 4096, where the recorded noise is greatest, and with the bursts that the help asks for. Of
    1,200 runs one was missed, so one of twenty may be; with 24 bursts it is one in ten. And one of
    twenty may have a false alarm beside it: the rules allow one table of 500."""
    chance, missed, alarms = random.Random(seed), 0, 0
    for _ in range(20):
        base, new = (
            simulated(chance, factor, drift, n_bursts=48, lengths=(1024, 4096))
            for factor in (lambda kernel, seq_len: 1.0, slow_seven)
        )
        found = compare_runs(base, new, rules).regressions()
        slow = [(line.label, line.key[0].seqlen_q) == ("kernel 7", 4096) for line in found]
        missed += not any(slow)
        alarms += not all(slow)
    assert missed <= 1 and alarms <= 1


def test_without_an_anchor_a_drift_would_be_taken_for_a_regression(seed: int) -> None:
    chance = random.Random(seed)
    base = simulated(chance)
    new = simulated(chance, lambda kernel, seq_len: 1.06)  # the reference, too
    assert len(compare_runs(base, new, Rules()).regressions()) > 30
    assert compare_runs(base, new, Rules(anchored=True)).regressions() == []


def test_halves_of_a_run_differ_by_noise_only(seed: int) -> None:
    run = simulated(random.Random(seed))
    first, second = halves(run)
    comparison: Comparison = compare_runs(first, second, Rules())
    assert len(comparison.lines) == 66 and comparison.regressions() == []
    n = [len(part.measured[comparison.lines[0].key].bursts) for part in (first, second)]
    assert n == [36, 36]


# From files to exit codes.


def write(path: Path, rows: list[Json]) -> str:
    path.write_bytes(b"".join(encode(row) for row in rows))
    return str(path)


def steady(kernel: str, ms: float, **more: Any) -> Json:
    return make_row(kernel, [ms * (1 + 0.001 * (i % 5)) for i in range(20)], **more)


BASE = [steady("fa2", 2.0), steady("a", 1.0), steady("b", 1.0), steady("c", 1.0)]
ON_AN_A100 = [{**row, "environment": {"gpu": "A100"}} for row in BASE]


@pytest.mark.parametrize(
    ("new", "arguments", "code", "message"),
    [
        (BASE, [], 0, "4 rows: 4 same, 0 faster, 0 slower, 0 ambiguous"),
        ([*BASE[:3], steady("c", 1.05)], [], 1, "slower: REGRESSION"),
        ([*BASE[:3], steady("c", 1.05)], ["--fail-over", "6"], 0, "1 slower"),
        ([*BASE[:3], steady("c", 0.9)], [], 0, "1 faster"),
        ([steady("fa2", 2.2), *BASE[1:]], [], 0, "1 slower"),  # not ours to fail
        ([*BASE[:3], steady("c", 1, status="wrong", error="5")], [], 1, "wrong: c at seq 1024: 5"),
        (BASE[:3], [], 2, "lacks 1 rows of the base, the first c"),
        (BASE[:3], ["--partial"], 0, "3 rows: 3 same"),
        ([steady("z", 1.0)], [], 2, "no kernel and problem in common"),
        (ON_AN_A100, [], 2, "different GPUs (H200; A100)"),
        (ON_AN_A100, ["--any_gpu"], 0, "4 same"),
        ([{**r, "policy": {"cold_l2": False}} for r in BASE], [], 2, "cold L2; warm L2"),
        ([{**r, "status": "timeout"} for r in BASE], [], 2, "none of its 4 rows is ok"),
        ([], [], 2, "none of its 0 rows is ok"),
        (BASE[1:], ["--anchored", "--partial"], 2, "no reference was measured in both"),
    ],
)  # fmt: skip
def test_exit_codes(
    new: list[Json], arguments: list[str], code: int, message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    paths = [write(tmp_path / "base.jsonl", BASE), write(tmp_path / "new.jsonl", new)]
    assert main([*paths, *arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.out + captured.err


def test_what_is_no_run_is_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good.jsonl", BASE)
    (tmp_path / "text.jsonl").write_text("hello\n")
    assert main([good, str(tmp_path / "absent.jsonl")]) == 2
    assert main([good, str(tmp_path / "text.jsonl")]) == 2
    errors = capsys.readouterr().err
    assert "No such file" in errors and "none of its 0 rows is ok" in errors
    with pytest.raises(SystemExit) as caught:
        main([good])
    assert caught.value.code == 2


def test_a_damaged_line_is_said_and_a_row_of_another_build_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = steady("a", 9.0, environment_fingerprint="older")
    path = tmp_path / "new.jsonl"
    write(path, [other, *BASE])
    path.write_bytes(path.read_bytes() + b'{"torn')
    assert main([write(tmp_path / "base.jsonl", BASE), str(path)]) == 0
    errors = capsys.readouterr().err
    assert "line 6 is left out: not JSON" in errors and "1 rows of other environments" in errors


def test_the_noise_floor_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--aa", str(RECORDED)]) == 0
    output = capsys.readouterr().out
    assert output.count("would be called a regression") == 13  # twelve problems and all
    paths = [write(tmp_path / f"{i}.jsonl", [steady("a", 1.0 + 0.02 * i)]) for i in (0, 1)]
    assert main(["--aa", *paths]) == 0
    assert "together +2.00" in capsys.readouterr().out


def test_the_tool_runs_and_the_first_stages_file_is_read() -> None:
    tool = ROOT / "tools/benchmark/compare.py"
    done = subprocess.run(
        [sys.executable, tool, RECORDED, RECORDED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "504 rows: " in done.stdout and "0 regression(s) past 2.5 %" in done.stdout
    assert json.loads(RECORDED.read_text())["rows"][0]["name"] == "PyTorch FlashAttention-2"
