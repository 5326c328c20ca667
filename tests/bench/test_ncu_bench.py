"""ncu_bench.py from the outside, with a program in ncu's place that replays or fails as told."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.flops import calc_matmul_flop, calc_self_attn_flop, calc_total_flop
from flash_lab.bench.ncu import NcuCase
from flash_lab.bench.ncu_metrics import METRICS
from flash_lab.correctness import run_cli
from flash_lab.correctness.selection import select_kernels
from tests.bench.ncu_stand_in import FAST, SHAPE, SLOW, Bench, rows


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_replayed_run_as_a_table(bench: Bench) -> None:
    done = bench("ok")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    names = [line.split(" |")[0].strip("| ") for line in lines]
    assert names == [
        "kernel", "cuDNN (FP16, 128)", "V2 FlashAttention-2 (PyTorch) (FP16, 128)", FAST, SLOW,
    ]  # fmt: skip
    header, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert header == [
        "kernel", "duration us", "cycles", "SM GHz", "regs", "L2 hit %", "bank conflicts",
        "tensor %", "memory %", "DRAM %", "occupancy %", "max occ. %", "load confl. %", "TFLOP/s",
        "Attn TFLOP/s", "matmul TFLOP/s", "relative", "rel. cycles", "spread %",
    ]  # fmt: skip
    fast = dict(zip(header, cells[2], strict=True))
    assert (fast["duration us"], fast["cycles"], fast["regs"]) == ("61.39", "109,502", "181")
    assert (fast["SM GHz"], fast["L2 hit %"], fast["bank conflicts"]) == ("1.775", "78.1", "15,839")
    assert (fast["tensor %"], fast["memory %"], fast["occupancy %"]) == ("46.3", "70.1", "12.0")
    assert (fast["relative"], fast["rel. cycles"]) == ("0.914", "0.916")
    slow = dict(zip(header, cells[3], strict=True))
    assert slow["load confl. %"] == "87.4"
    assert "n/a" not in done.stdout.split("cuDNN")[0]


def test_a_replayed_run_as_csv(bench: Bench) -> None:
    done = bench("ok", "--csv", "--no_sort")
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert [row["kernel"] for row in table[2:]] == [SLOW, FAST]  # in the order asked for
    assert [row["provider"] for row in table] == ["v2", "v3", "ours", "ours"]
    assert {row["status"] for row in table} == {"ok"}
    assert {(row["d_head"], row["seq_len"], row["launches"]) for row in table} == {
        ("128", "1024", "2")
    }
    for row in table:
        assert all(float(row[metric.key]) >= 0 for metric in METRICS)
        seconds = float(row["duration_ns"]) * 1e-9
        attn, matmul = (float(row[f"{name}_tflops"]) for name in ("attn", "matmul"))
        assert attn == pytest.approx(calc_self_attn_flop(2, 16, 1024, 128) / seconds / 1e12)
        assert matmul == pytest.approx(
            calc_matmul_flop(2, 16, 1024, 1024, 128) / seconds / 1e12
        )  # fmt: skip
        assert row["ncu"] == "2025.3.1.0"
        assert "--no_sort" in row["command"]
    v2, cudnn, slow, fast = table
    assert float(fast["duration_ns"]) == (61_376 + 61_408) / 2
    assert float(slow["total_tflops"]) == pytest.approx(
        calc_total_flop(2, 16, 1024, 64, 64, 128) / float(slow["duration_ns"]) / 1e3
    )
    assert float(v2["total_tflops"]) > float(v2["attn_tflops"])  # its tile is in its name
    assert cudnn["total_tflops"] == ""  # not known, so not 0
    assert float(v2["relative"]) == 1
    assert float(fast["spread_pct"]) == pytest.approx(100 * 32 / 61_392)


def test_what_ncu_is_asked(bench: Bench) -> None:
    bench("ok", "--metrics", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "--csv")
    (call,) = bench.calls()
    own, target = call[: call.index(sys.executable)], call[call.index(sys.executable) + 1 :]
    pairs = dict(itertools.pairwise(own))
    assert pairs["--clock-control"] == "none"
    assert pairs["--print-units"] == "base"
    assert pairs["--kernel-name"].startswith("regex:")
    assert pairs["--metrics"].split(",") == [
        *(metric.name for metric in METRICS), "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ]  # fmt: skip
    assert target[:2] == ["-m", run_cli.__name__]
    assert "--ref" in target
    assert "--ref_v3" in target


def test_run_kernels_takes_the_arguments() -> None:
    configs = get_kernel_configs("tune")
    case = NcuCase.of(configs, 1024, 128, 3, 5, 77, 2, ["ours", "v2", "v3"])
    args = run_cli.make_parser().parse_args(case.arguments(case.configs, ["v2", "v3"]))
    assert select_kernels(args.kernels) == configs
    assert (args.seq_len, args.d_head, args.batch, args.heads) == (1024, 128, 3, 5)
    assert (args.n_runs, args.seed, args.device) == (2, 77, "cuda")
    assert args.csv
    assert args.ref
    assert args.ref_v3


def test_providers_and_a_further_metric(bench: Bench) -> None:
    extra = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    done = bench("ok", "--csv", "--providers=v3", f"--metrics={extra}")
    assert done.returncode == 0, done.stderr
    (row,) = rows(done.stdout)
    assert row["provider"] == "v3"
    assert float(row[extra]) == pytest.approx((56.25 + 56.76) / 2)
    target = bench.calls()[0]
    assert "--ref" not in target
    assert len(target[target.index("--kernels") + 1 :]) == 1


@pytest.mark.parametrize(
    ("mode", "code", "message"),
    [
        ("permission", 4, "CAP_SYS_ADMIN"),
        ("nokernel", 4, "profiled no kernel"),
        ("appfails", 4, "no such thing"),
        ("empty", 4, "printed no table|before it reported"),
        ("silent", 4, "printed no table"),
        ("badtable", 4, "no column 'Metric Unit'"),
        ("wrongunit", 4, "has the unit 'weeks'"),
        ("broken", 4, "--version exits with 3: NVIDIA"),
        ("dies", 4, "before its output was checked"),
        ("hang", 4, "stopped after 1 s"),
        ("badmetric", 4, "sm__cycles_elapsed.max is absent"),
    ],
)
def test_no_data(bench: Bench, mode: str, code: int, message: str) -> None:
    for arguments in ((), ("--csv",)):
        timeout = ("--timeout=1",) if mode == "hang" else ()
        done = bench(mode, *timeout, *arguments)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert re.search(message, said), said
        assert "Traceback (most" not in said
        assert "duration us" not in said  # no empty table
        assert all(not row["duration_ns"] for row in rows(done.stdout) if arguments)
        if mode == "hang":
            break  # it takes a second


@pytest.mark.parametrize(
    ("mode", "code", "message", "measured"),
    [
        ("wrong", 1, "error / tolerance 7.0", 3),
        ("noref", 3, "no such backend", 3),
        ("nounit", 3, "lts__t_sector_hit_rate.pct has the unit ''", 4),
        ("wrongvalue", 3, "a unit is wrong", 3),
        ("truncated", 3, "is malformed", 4),
        ("renamed", 3, "nobody claims", 2),
        ("microseconds", 0, "", 4),
    ],
)
def test_a_part_of_the_data(
    bench: Bench, mode: str, code: int, message: str, measured: int
) -> None:
    done = bench(mode, "--csv")
    assert done.returncode == code, done.stderr
    assert message in done.stdout + done.stderr
    table = rows(done.stdout)
    assert len(table) == 4
    good = [row for row in table if row["duration_ns"]]
    assert len(good) == measured
    assert {row["status"] for row in good} <= {"ok", "incomplete"}
    for row in table:  # nothing that is not known is a zero
        bad = [m.key for m in METRICS if row[m.key] and float(row[m.key]) == 0]
        assert bad in ([], ["load_bank_conflicts"])
    if mode == "wrong":
        assert [(row["kernel"], row["status"]) for row in table if not row["duration_ns"]] == [
            (SLOW, "wrong")
        ]
    if mode == "truncated":
        slow = next(row for row in table if row["kernel"] == SLOW)
        assert (slow["status"], slow["launches"]) == ("incomplete", "1")
        assert "1 launches of it were profiled in 2 runs" in slow["notes"]
    if mode == "microseconds":
        slow = next(row for row in table if row["kernel"] == SLOW)
        assert float(slow["duration_ns"]) == pytest.approx(330_560)
    if mode == "nounit":
        assert {row["l2_hit_pct"] for row in table} == {""}
        assert {row["status"] for row in table} == {"incomplete"}
        assert "n/a" in bench("nounit").stdout


def test_two_launches_in_one_run_are_not_summed(bench: Bench) -> None:
    """The recording has two launches of each kernel."""
    shape = tuple(item.replace("--runs=2", "--runs=1") for item in SHAPE)
    done = bench("ok", "--csv", "--providers=ours", shape=shape)
    assert done.returncode == 3
    table = {row["kernel"]: row for row in rows(done.stdout)}
    assert float(table[FAST]["duration_ns"]) == (61_376 + 61_408) / 2
    assert {row["status"] for row in table.values()} == {"incomplete"}
    assert "2 launches of it were profiled in 1 runs" in table[FAST]["notes"]


def test_an_unknown_metric_is_na_and_the_rest_is_shown(bench: Bench) -> None:
    done = bench("ok", "--metrics=no__such_metric.sum")
    assert done.returncode == 3
    assert "| n/a " in done.stdout.replace("  ", "")
    assert "no__such_metric.sum is absent" in done.stdout
    assert FAST in done.stdout


def test_kernels_after_a_lost_device_get_another_run(bench: Bench) -> None:
    done = bench("fault,ok", "--csv", "--providers=ours")
    assert done.returncode == 3
    table = {row["kernel"]: row for row in rows(done.stdout)}
    assert table[SLOW]["status"] == "failed"
    assert "illegal" in table[SLOW]["notes"]
    assert table[FAST]["status"] == "ok"
    first, second = bench.calls()
    assert len(first) == len(second) + 1


def test_the_words_for_a_lost_device_are_the_runners() -> None:
    import inspect

    from flash_lab.bench import ncu
    from flash_lab.correctness import runner

    assert ncu.DEVICE_LOST in inspect.getsource(runner)


def test_a_missing_ncu(bench: Bench) -> None:
    (bench.folder / "bin/ncu").unlink()
    if Path("/usr/local/cuda/bin/ncu").exists() or Path("/opt/nvidia/nsight-compute").exists():
        pytest.skip("ncu is installed here")
    done = bench("ok")
    assert (done.returncode, done.stdout) == (4, "")
    assert "install NVIDIA Nsight Compute" in done.stderr
    named = bench("ok", "--ncu=/nowhere/ncu")
    assert (named.returncode, named.stdout) == (4, "")
    assert "--ncu '/nowhere/ncu'" in named.stderr
    assert "NCU '/nowhere/ncu'" in bench("ok", NCU="/nowhere/ncu").stderr


def test_a_length_that_no_kernel_fits(bench: Bench) -> None:
    """A kernel of whole blocks alone; and FAST, which has a general one, is profiled."""
    shape = ("--batch=2", "--runs=2", f"--kernels={SLOW}")
    done = bench("ok", "--seq_lens=1000", shape=shape)
    assert done.returncode == 4
    assert "not divisible by its B_r = 64" in done.stdout
    assert not bench.log.exists()
    assert bench("ok", "--seq_lens=1024,1000", shape=shape).returncode == 3
    general = (*shape[:2], f"--kernels={SLOW};{FAST}")
    assert bench("ok", "--seq_lens=1000", shape=general).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seq_lens=0",), ("--seq_lens=1024,",), ("--runs=0",), ("--providers=theirs",),
        ("--clock-control=boost",), ("--metrics=--help",), ("--dtypes=fp8",), ("--kernels=fast",),
        ("--reader=pickle",), ("--timeout=-1",), ("extra",),
    ],
)  # fmt: skip
def test_usage(bench: Bench, arguments: tuple[str, ...]) -> None:
    done = bench("ok", *arguments, shape=())
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert not bench.log.exists()
