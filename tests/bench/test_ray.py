"""Sweeps on a Ray cluster of this host: CPU workers with the fake backend, and the emulator."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.base.timing import Policy
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.autotune_cli import main as autotune
from flash_lab.bench.parallel import each
from flash_lab.bench.pt_cli import main as pt_bench
from flash_lab.bench.ray_pool import RayPool, in_common
from flash_lab.bench.row import Row
from flash_lab.bench.store import StoreError, open_store, read_store
from flash_lab.bench.supervisor import WorkerStartError
from flash_lab.bench.sweep import Case, Sweep, make_case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BACKEND = "fake_backend:FakeBackend"
PROG = [config.short_form() for config in get_kernel_configs("prog")]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray"
)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))


SWEEP = ["--kernels", "prog", "--num_repeats", "4", "--target_noise", "0", "--no_ceilings"]
SWEEP += ["--seq_lens", "512,1024,2048,4096", "--providers", "ours"]
SWEEP += ["--ray", "local", "--ray_workers", "3"]


def sweep(tmp_path: Path, *more: str) -> int:
    return pt_bench([*SWEEP, "--out", str(tmp_path / "rows.jsonl"), *more], BACKEND)


@needs_ray
@pytest.mark.slow
def test_a_lost_worker_costs_one_row_and_a_second_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers share four problems; one kernel kills the Ray worker that it runs on."""
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({f"{PROG[2]}|": "kills its parent at 1024"}))
    assert sweep(tmp_path) == 3
    rows = read_store(tmp_path / "rows.jsonl").finished()
    assert len(rows) == 4 * 7
    (lost,) = [row for row in rows if row.status != "ok"]
    assert (lost.kernel, lost.problem.seqlen_q) == (PROG[2], 1024)
    assert lost.status == "launch_fail" and "the Ray worker on" in (lost.error or "")
    alone = [row for row in rows if "measured alone" in (row.note or "")]
    assert len(alone) == 6 and {row.problem.seqlen_q for row in alone} == {1024}
    assert {row.environment_fingerprint for row in rows} == {rows[0].environment_fingerprint}
    assert len({row.worker for row in rows}) == 3
    monkeypatch.setenv("FAKE_FAULTS", "{}")
    (tmp_path / "log").unlink()
    assert sweep(tmp_path, "--resume", "--retry_failed") == 0
    again = (tmp_path / "log").read_text().splitlines()
    assert set(again) == {f"check {PROG[2]}"}
    assert all(row.status == "ok" for row in read_store(tmp_path / "rows.jsonl").finished())


@needs_ray
@pytest.mark.slow
def test_a_host_that_goes_away_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes with a worker each, as on two hosts; one is killed while its kernel runs."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("FAKE_FAULTS", json.dumps({f"{PROG[4]}|": "slow"}))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'py'}:{ROOT}:{HERE}")
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    lost = threading.Timer(0.0, cluster.remove_node, [second, False])
    configs = get_kernel_configs("prog")
    lengths = (512, 1024, 2048, 4096)
    cases = [
        make_case(AttentionProblem.self_attention(DType.FP16, 1, n, 1, 128), 1, configs, ["ours"])
        for n in lengths
    ]
    try:
        with (
            open_store(tmp_path / "rows.jsonl", resume=False) as store,
            RayPool(BACKEND, 600, address=cluster.address, n_workers=2, start_limit_s=20) as pool,
        ):
            sweep = Sweep(store, pool, Policy(0, 4, False), "test")

            def work(case: Case) -> list[Row]:
                rows = []
                for row in sweep.run(case):
                    rows.append(row)
                    if len(rows) == 7 and case is cases[0]:
                        lost.start()  # the others run meanwhile
                return rows

            assert len(list(each(cases, work, pool.n_workers))) == 4
    finally:
        cluster.shutdown()
    rows = read_store(tmp_path / "rows.jsonl").finished()
    assert len(rows) == 4 * 7 and {row.status for row in rows} == {"ok"}
    assert "1 worker(s) left" in capsys.readouterr().out


@needs_ray
@pytest.mark.slow
def test_ctrl_c_ends_the_cluster_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({f"{PROG[2]}|": "hangs at 1024"}))
    code = "import sys; from flash_lab.bench.pt_cli import main; sys.exit(main(backend=%r))"
    before = set(Path(tempfile.gettempdir()).glob("ray-*"))
    arguments = [*SWEEP, "--out", str(tmp_path / "rows.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-c", code % BACKEND, *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'py'}:{HERE}"},
    )  # fmt: skip
    log = tmp_path / "log"
    while process.poll() is None:
        done = (tmp_path / "rows.jsonl").read_text() if (tmp_path / "rows.jsonl").exists() else ""
        if done.count('"status":"ok"') == 3 * 7 and f"check {PROG[2]}" in log.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.stderr and process.stderr.read()
    rows = read_store(tmp_path / "rows.jsonl").finished()
    assert len(rows) == 3 * 7 and {row.status for row in rows} == {"ok"}
    assert set(Path(tempfile.gettempdir()).glob("ray-*")) <= before


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_cannot_start_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    far = tmp_path / ("long" * 30)
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    assert sweep(tmp_path) == 4
    assert "no data: Ray at 'local': " in capsys.readouterr().err


@needs_ray
@pytest.mark.slow
def test_the_tuner_finds_the_same_winners_on_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [c.short_form() for c in get_kernel_configs("128,64") if c.dtype is DType.FP16]
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps({f"{kernels[3]}|": 0.5}))
    arguments = ["--kernels", "128,64", "--dtypes", "fp16", "--seq_lens", "512,1024,2048"]
    arguments += ["--no_build", "--no_ceilings", "--ray", "local", "--ray_workers", "2"]
    files = ["--out", str(tmp_path / "rows.jsonl"), "--table", str(tmp_path / "table.json")]
    assert autotune([*arguments, *files], BACKEND) == 0
    entries = json.loads((tmp_path / "table.json").read_text())["entries"]
    assert [entry["kernels"][0] for entry in entries] == [kernels[3]] * 3


@needs_ray
@pytest.mark.slow
def test_the_emulator_measures_on_ray(tmp_path: Path) -> None:
    """Real kernels: compiled for the emulator, checked against the reference, in two workers."""
    configs = get_kernel_configs("prog")[-2:]
    cases = [
        make_case(AttentionProblem.self_attention(DType.FP16, 1, n, 1, 128), 3, configs, ["ours"])
        for n in (64, 128)
    ]
    backend = "emulator_backend:EmulatorBackend"
    with (
        open_store(tmp_path / "rows.jsonl", resume=False) as store,
        RayPool(backend, 300.0, n_workers=2) as pool,
    ):
        sweep = Sweep(store, pool, Policy(0, 2, False), "test")
        found = dict(each(cases, lambda p: list(sweep.run(p)), pool.n_workers))
    assert len(found) == 2
    rows = read_store(tmp_path / "rows.jsonl").finished()
    assert len(rows) == 4 and {row.status for row in rows} == {"ok"}
    assert {row.environment["gpu"] for row in rows} == {"emulator"}
    assert all(len(row.samples_ms) == 2 and row.worker for row in rows)


@needs_ray
@pytest.mark.slow
def test_a_worker_that_cannot_start_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_START", "fails")
    assert sweep(tmp_path) == 4
    assert "torch sees no CUDA device" in capsys.readouterr().err


def test_without_ray_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert sweep(tmp_path) == 2
    assert "--ray needs Ray: pip install ray" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "arguments", "said"),
    [
        (pt_bench, ["--ray", "local", "--device", "0"], "--device is for one worker"),
        (pt_bench, ["--ray_workers", "2"], "--ray_workers needs --ray"),
        (autotune, ["--ray", "local"], "--ray needs --no_build"),
    ],
)
def test_arguments_that_do_not_go_together(
    main: Callable[[list[str], str], int], arguments: list[str], said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with pytest.raises(SystemExit, match="2"):
        main(["--kernels", "prog", *arguments], BACKEND)
    assert said in capsys.readouterr().err


def test_workers_that_differ_are_refused() -> None:
    one = {"gpu": "NVIDIA H200", "driver": "580", "gpu_uuid": "GPU-1"}
    same = in_common([one, {**one, "gpu_uuid": "GPU-2"}])
    assert same == {"gpu": "NVIDIA H200", "driver": "580"}
    with pytest.raises(WorkerStartError, match="differ in driver: '580' and '570'"):
        in_common([one, {**one, "driver": "570"}])
    with pytest.raises(WorkerStartError, match="differ in build_fingerprint: None and 'f'"):
        in_common([one, {**one, "build_fingerprint": "f"}])


def test_problems_run_at_once_and_an_error_in_one_is_raised() -> None:
    meeting = threading.Barrier(3, timeout=600)

    def work(item: int) -> int:
        meeting.wait()  # all three are here together
        return item * item

    assert sorted(each([1, 2, 3], work, 3)) == [(1, 1), (2, 4), (3, 9)]
    assert list(each([3, 1], lambda item: -item, 1)) == [(3, -3), (1, -1)]

    def fails(item: int) -> int:
        if item == 2:
            raise RuntimeError("planted")
        return item

    with pytest.raises(RuntimeError, match="planted"):
        list(each([1, 2, 3], fails, 2))


def test_a_closed_store_takes_nothing_more(tmp_path: Path) -> None:
    """A thread that outlives its sweep must not write into whatever file came after."""
    with open_store(tmp_path / "rows.jsonl", resume=False) as store:
        pass
    with pytest.raises(StoreError, match="was closed"):
        store.append({"status": "ok", "key": "k", "kernel": "a", "provider": "ours"})
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
