"""The measuring code without a GPU: statistics, turns, tables, exit codes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from flash_helpers.base.timing import Policy, Sample, interleaved, standard_error
from flash_lab.bench.clocks import Reading, throttled
from flash_lab.bench.report import flat, render_csv, render_json, table
from flash_lab.bench.results import by_problem, usable_bursts
from flash_lab.bench.row import Row
from flash_lab.bench.stats import percentile, summarize, tflops
from flash_lab.provenance import COMMIT_VARIABLE, provenance, source_state


def test_a_summary() -> None:
    s = summarize([4.0, 1.0, 3.0, 2.0, 100.0])
    assert (s.n, s.median, s.minimum, s.maximum) == (5, 3.0, 1.0, 100.0)
    assert (s.lower_quartile, s.upper_quartile) == (2.0, 4.0)
    assert summarize([2.0]).stdev == 0.0


@pytest.mark.parametrize("sample", [[], [1.0, 0.0], [math.nan], [math.inf], [-1.0]])
def test_a_sample_that_is_not_one(sample: list[float]) -> None:
    with pytest.raises(ValueError, match=r"empty|positive and finite"):
        summarize(sample)


def test_tflops() -> None:
    assert tflops(4 * 10**12, 2000.0) == pytest.approx(2.0)


def test_functions_take_turns_in_bursts_and_changing_order() -> None:
    calls: list[str] = []
    functions = {n: (lambda n=n: calls.append(n)) for n in "abc"}

    def timer(function: Callable[[], object]) -> Sample:
        function()
        return Sample(float(len(calls)))

    heard: list[str] = []
    policy = Policy(warmups=1, repeats=10, cold_l2=False, burst=4)
    bursts = interleaved(functions, policy, timer, 7, heard.append)
    sizes = {name: [len(burst) for burst in taken] for name, taken in bursts.items()}
    assert sizes == {name: [4, 4, 2] for name in "abc"}
    assert heard[3:] == [*calls[3:15:4], *calls[15:27:4], *calls[27::2]]
    assert calls[:3] == ["a", "b", "c"]  # warm-up
    timed = calls[3:]
    assert timed[0] == timed[3] != timed[4]  # bursts of four
    rounds = [tuple(dict.fromkeys(timed[i : i + 12])) for i in (0, 12)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)


def scripted(times: dict[str, list[float]]) -> Callable[[Callable[[], object]], Sample]:
    """A timer that reads its results from a script; the last one repeats."""

    def timer(function: Callable[[], object]) -> Sample:
        script = times[str(function())]
        return Sample(script.pop(0) if len(script) > 1 else script[0])

    return timer


def test_sampling_goes_on_for_all_until_the_noisiest_is_quiet() -> None:
    functions = {n: (lambda n=n: n) for n in "ab"}
    policy = Policy(0, 4, cold_l2=False, burst=2, target_noise=0.05, max_repeats=40)
    noisy = [1.0, 1.0, 2.0, 2.0, 1.5]  # and 1.5 for ever
    bursts = interleaved(functions, policy, scripted({"a": [1.0], "b": list(noisy)}), 1)
    assert len(bursts["a"]) == len(bursts["b"]) > 2
    error = [standard_error([[s.ms for s in b] for b in bursts["b"][:n]]) for n in range(2, 99)]
    n_needed = next(n for n, e in enumerate(error, start=2) if e <= 0.05)
    assert len(bursts["b"]) == n_needed
    capped = Policy(0, 4, cold_l2=False, burst=2, target_noise=0.0001, max_repeats=7)
    bursts = interleaved(functions, capped, scripted({"a": [1.0], "b": list(noisy)}), 1)
    assert [len(b) for b in bursts["b"]] == [2, 2, 2, 1]


def test_the_standard_error_takes_a_burst_for_one_observation() -> None:
    assert standard_error([[1.0, 3.0], [4.0, 4.0]]) == pytest.approx(1 / 3)
    assert standard_error([[1.0, 2.0]]) == math.inf


@pytest.mark.parametrize(
    "values",
    [{"repeats": 0}, {"burst": 0}, {"warmups": -1}, {"target_noise": 1.0}, {"max_repeats": 3}],
)
def test_a_policy_that_makes_no_sense(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be|is less than"):
        Policy(**{"warmups": 0, "repeats": 4, "cold_l2": False} | values)  # type: ignore[arg-type]


SHAPE = {
    "dtype": "FP16", "batch": 1, "n_heads": 1, "n_kv_heads": 1, "seq_len": 1024, "d_head": 128,
    "seed": 3, "causal": False,
}  # fmt: skip


def row(kernel: str, samples: list[float], provider: str = "ours", **more: Any) -> Row:
    known = {"kernel": kernel, "provider": provider, "status": "ok", "shape": SHAPE, "error": ""}
    more = {"samples_ms": samples, "bursts": [1] * len(samples)} | more
    return Row.from_json(known | more)


def test_the_table_ranks_and_says_what_failed() -> None:
    rows = [
        row("fa2", [2.0, 2.0], "fa2", label="FlashAttention-2"),
        row("slow", [4.0, 4.0]),
        row("fast", [1.0, 1.0], effective_sm_mhz=1755.2),
        row("broken", [], status="wrong", error="3 of 4 rows are wrong"),
        row("fa2", [2.0, 2.0], "fa2", label="FlashAttention-2"),  # of the second group
        row("fa3", [], "fa3", status="skipped", error="not installed"),
        row("fa3", [], "fa3", status="skipped", error="not installed"),
    ]
    (problem,) = by_problem(rows)
    text = table(problem)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[1:]] == [
        "fast", "FlashAttention-2", "slow",
    ]  # fmt: skip
    assert "2.000" in lines[1] and "1755" in lines[1] and "0.500" in lines[3]
    assert "wrong: broken: 3 of 4 rows are wrong" in text
    assert text.count("skipped: fa3: not installed") == 1
    assert "(1 slower kernels not shown)" in table(problem, top=1)
    assert problem.ranked[1].summary.n == 4


def test_a_wrong_kernel_has_no_rank_and_no_figure() -> None:
    (problem,) = by_problem([row("broken", [0.001], status="wrong")])
    assert problem.ranked == []
    (line,) = flat([problem])
    assert "matmul_tflops" not in line
    assert render_csv([problem]).splitlines()[1].startswith("wrong,ours,broken,")


def test_throttled_samples_do_not_count_unless_there_are_no_others() -> None:
    samples = [1.0, 9.0, 1.0, 1.0]
    one = row("a", samples, throttled={"1": "hardware slowdown"}, bursts=[2, 2])
    assert usable_bursts(one) == [[1.0], [1.0, 1.0]]
    every = row("a", samples, throttled={str(i): "power brake" for i in range(4)}, bursts=[2, 2])
    assert usable_bursts(every) == [[1.0, 9.0], [1.0, 1.0]]
    (problem,) = by_problem([one])
    assert "note: a: 1 of 4 samples left out: hardware slowdown" in table(problem)
    (problem,) = by_problem([every])
    assert "all 4 samples were taken throttled (power brake)" in table(problem)


def test_which_readings_spoil_a_sample() -> None:
    readings = [Reading(float(t), 1700, 600.0, 60, bits) for t, bits in enumerate([4, 4, 0x48, 0])]
    samples = [Sample(1.0, None, t, t + 0.5) for t in (0.2, 1.8, 2.6, 3.2)]
    hot = "hardware slowdown, hardware thermal slowdown"
    assert throttled(samples, readings) == ["", hot, hot, ""]


def test_csv_and_json_have_every_figure() -> None:
    (problem,) = by_problem([row("fa2", [2.0], "fa2"), row("a", [1.0, 1.2, 1.1, 5.0], symbol="s")])
    records = list(csv.DictReader(io.StringIO(render_csv([problem]))))
    assert [r["kernel"] for r in records] == ["a", "fa2"]
    a = records[0]
    assert (a["n"], a["min_ms"], a["max_ms"], a["outliers"]) == ("4", "1.0", "5.0", "1")
    assert a["symbol"] == "s" and float(a["p99_ms"]) > float(a["p90_ms"]) > float(a["p50_ms"])
    assert float(a["relative"]) == pytest.approx(2.0 / 1.15, rel=1e-3)
    assert float(a["matmul_tflops"]) == pytest.approx(4 * 1024**2 * 128 / 1.15e9, rel=0.01)
    found = json.loads(render_json([problem], {"gpu": "x"}))
    assert found["environment"] == {"gpu": "x"}
    assert found["rows"][0]["samples_ms"] == [1.0, 1.2, 1.1, 5.0]


def test_percentiles_are_numpys() -> None:
    numpy = pytest.importorskip("numpy")
    sample = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    for percent in (0, 25, 50, 90, 99, 100):
        assert percentile(sample, percent) == pytest.approx(numpy.percentile(sample, percent))


def test_provenance_names_commit_and_command() -> None:
    found = provenance(["pt_bench.py", "--top", "3"])
    assert found["command"] == "python pt_bench.py --top 3"
    assert {"date", "commit", "torch", "gpu"} <= found.keys()


def test_the_commit_that_was_copied_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMIT_VARIABLE, raising=False)
    here = source_state()["commit"]
    monkeypatch.setenv(COMMIT_VARIABLE, "0123abc")
    assert source_state() == {"commit": "0123abc", "dirty": "unknown"} and here != "0123abc"
