"""The measuring code without a GPU: statistics, turns, tables, exit codes."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_helpers.bench.provenance import provenance
from flash_helpers.bench.report import table
from flash_helpers.bench.stats import summarize, tflops
from flash_helpers.bench.sweep import Result, Row
from flash_helpers.bench.timing import Policy, Sample, interleaved, standard_error
from flash_helpers.dtypes import DType
from flash_helpers.workload import Workload

TOOL = Path(__file__).resolve().parents[2] / "tools/benchmark/pt_bench.py"


def test_a_summary() -> None:
    s = summarize([4.0, 1.0, 3.0, 2.0, 100.0])
    assert (s.n, s.median, s.minimum, s.maximum) == (5, 3.0, 1.0, 100.0)
    assert (s.lower_quartile, s.upper_quartile) == (2.0, 4.0)
    assert s.noise == pytest.approx(1 / 3)
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


def result(rows: list[Row]) -> Result:
    workload = Workload(1, 1, 1, 1024, 128, DType.FP16, 3)
    return Result(workload, rows, {"sm_mhz": 1700.0, "watts": 600.0}, "")


def test_the_table_ranks_and_says_what_failed() -> None:
    rows = [
        Row("FlashAttention-2", False, samples_ms=[2.0, 2.0]),
        Row("slow", True, samples_ms=[4.0]),
        Row("fast", True, samples_ms=[1.0]),
        Row("broken", True, status="wrong", note="3 of 4 rows are wrong"),
    ]
    text = table(result(rows))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[1:]] == [
        "fast", "FlashAttention-2", "slow",
    ]  # fmt: skip
    assert "2.000" in lines[1] and "0.500" in lines[3]
    assert "wrong: broken: 3 of 4 rows are wrong" in text
    assert "(1 slower kernels not shown)" in table(result(rows), top=1)


def test_a_wrong_kernel_has_no_rank_and_no_figure() -> None:
    rows = [Row("broken", True, status="wrong", note="x", samples_ms=[])]
    assert result(rows).ranked() == []
    assert "matmul_tflops" not in result(rows).as_json()[0]


def test_provenance_names_commit_and_command() -> None:
    found = provenance(["pt_bench.py", "--top", "3"])
    assert found["command"] == "python pt_bench.py --top 3"
    assert {"date", "commit", "torch", "gpu"} <= found.keys()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--seq_lens", "12,x"], 2, "expected positive integers"),
        (["--dtypes", "fp8"], 2, "fp8"),
        (["--kernels", "nonsense"], 2, "nonsense"),
        (["--num_repeats", "0"], 2, "at least 1"),
        (["--kernels", "prog"], 4, "no CUDA device"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, message: str) -> None:
    import torch

    if code == 4 and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code and message in done.stderr
