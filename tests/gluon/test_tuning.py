"""The tuning cache: what is measured, what is written, and what a damaged file does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.gluon import GluonForwardConfig, configs
from flash_attention.gluon.op import GluonAttention
from flash_attention.triton_kit import tuning as kernel_tuning
from flash_attention.triton_kit.calls import AttentionCall
from flash_attention.triton_kit.tuning import (
    Measured,
    Tuned,
    TuningCacheWarning,
    TuningFailedError,
    best,
    measure_on_gpu,
    source_hash,
    tuning_key,
)
from flash_helpers.base.dtypes import DType
from flash_helpers.base.timing import Sample
from flash_helpers.kernels.problem import AttentionProblem

KEY = {"kind": "gluon-ws-pp", "seqlen_q": 8192}
SPACE = configs(True, 128)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "triton_tuning"


class Gpu:
    """Says what it is told, and counts how often it is asked."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.asked = 0
        self.failing = failing

    def __call__(self, candidates: Sequence[GluonForwardConfig]) -> Measured:
        self.asked += 1
        times = {i: 5.0 - 0.5 * i for i in range(len(candidates)) if i not in self.failing}
        return times, dict.fromkeys(self.failing, "OutOfResources: shared memory")


def tuned(gpu: Gpu, key: dict[str, Any] = KEY) -> Tuned[GluonForwardConfig]:
    return best(key, SPACE[:4], GluonForwardConfig, gpu)


def test_measured_once_then_read(cache: Path) -> None:
    gpu = Gpu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = tuned(gpu), tuned(gpu)
    assert gpu.asked == 1
    assert first == Tuned(SPACE[3], 3.5)
    assert second == replace(first, cached=True)
    assert tuned(gpu, KEY | {"seqlen_q": 128}).config == SPACE[3]
    assert gpu.asked == 2
    assert not [p for p in cache.iterdir() if p.suffix not in (".json", ".lock")]


def test_a_failing_configuration_costs_only_itself() -> None:
    with pytest.warns(TuningCacheWarning, match=r"1 of 4 configurations do not run: .*OutOfRes"):
        found = tuned(Gpu(failing=[3]))
    assert found.config == SPACE[2]
    assert found.failed == ((SPACE[3].as_dict(), "OutOfResources: shared memory"),)
    assert tuned(Gpu()).failed == found.failed  # it is remembered


def test_nothing_runs() -> None:
    gpu = Gpu(failing=range(4))
    with pytest.raises(TuningFailedError, match="no configuration runs: BLOCK_M=128"):
        tuned(gpu)
    with pytest.raises(TuningFailedError):  # and nothing was cached
        tuned(gpu)
    assert gpu.asked == 2


def test_a_call_that_raises_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def call(i: int) -> None:
        ran.append(i)
        if i == 1:
            raise RuntimeError("PTXAS error\n`ptxas` stderr:\nno registers")

    def timer(function: Callable[[], None]) -> Sample:
        function()
        return Sample(ms=[3.0, 9.0, 1.0][ran[-1]] + 0.01 * len(ran))

    monkeypatch.setattr("flash_attention.triton_kit.tuning.CudaTimer", lambda *_, **__: timer)
    monkeypatch.setattr("torch.cuda.synchronize", lambda _: None)
    monkeypatch.setattr("torch.cuda.device", lambda _: contextlib.nullcontext())
    times, reasons = measure_on_gpu([partial(call, i) for i in range(3)], torch.device("cuda"))
    assert reasons == {1: "RuntimeError: PTXAS error `ptxas` stderr: no registers"}
    assert ran[:3] == [0, 1, 2] and ran.count(1) == 1
    assert sorted(times) == [0, 2] and times[2] < 2 < 3 < times[0] < 4
    assert ran.count(0) == ran.count(2) == 1 + 1 + 8  # tried, warmed up, sampled


def entry(cache: Path) -> Path:
    (path,) = cache.glob("*.json")
    return path


def damage(path: Path, how: str) -> None:
    data = json.loads(path.read_text())
    match how:
        case "cut":
            path.write_text(path.read_text()[:40])
        case "binary":
            path.write_bytes(b"\xff\xfe\x00")
        case "list":
            path.write_text("[]")
        case "other key":
            path.write_text(json.dumps(data | {"key": {"kind": "gluon-ws"}}))
        case "negative":
            path.write_text(json.dumps(data | {"milliseconds": -1}))
        case "bool":
            path.write_text(json.dumps(data | {"milliseconds": True}))
        case "no config":
            path.write_text(json.dumps({k: v for k, v in data.items() if k != "config"}))
        case "other field":
            path.write_text(json.dumps(data | {"config": data["config"] | {"BLOCK": 1}}))
        case "other type":
            path.write_text(json.dumps(data | {"config": data["config"] | {"BLOCK_M": "128"}}))
        case "other number":
            path.write_text(json.dumps(data | {"config": data["config"] | {"BLOCK_M": 64}}))
        case "no checksum":
            path.write_text(json.dumps({k: v for k, v in data.items() if k != "checksum"}))
        case "nested":
            path.write_text("[" * 200_000)
        case "brackets":
            path.write_text("[" * 200_000)
        case "beyond floats":
            path.write_text(json.dumps(data | {"milliseconds": 10**400}))
        case "NaN":
            path.write_text(json.dumps(data | {"milliseconds": float("nan")}))
        case "pipe":  # whoever opens it waits
            path.unlink()
            os.mkfifo(path)
        case "failed":
            path.write_text(json.dumps(data | {"failed": ["x"]}))


@pytest.mark.parametrize(
    "how",
    ["cut", "binary", "list", "other key", "negative", "bool", "no config", "other field",
     "other type", "other number", "no checksum", "nested", "failed", "brackets", "beyond floats",
     "NaN", "pipe"],
)  # fmt: skip
def test_a_damaged_file_is_reported_and_remade(cache: Path, how: str) -> None:
    gpu = Gpu()
    good = tuned(gpu)
    before = entry(cache).read_text()
    damage(entry(cache), how)
    with pytest.warns(TuningCacheWarning, match="cannot be used .*: it is measured and written"):
        assert tuned(gpu) == good
    assert gpu.asked == 2
    assert entry(cache).read_text() == before


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_time_that_cannot_be_never_wins(ms: float, cache: Path) -> None:
    def measure(candidates: Sequence[GluonForwardConfig]) -> Measured:
        return {0: 2.0, 1: ms}, {}

    with pytest.warns(TuningCacheWarning, match=re.escape(f": it took {ms} ms")):
        found = best(KEY, SPACE[:2], GluonForwardConfig, measure)
    assert found.config == SPACE[0] and found.milliseconds == 2.0
    assert best(KEY, SPACE[:2], GluonForwardConfig, measure).cached


@pytest.mark.parametrize("name", ["kernel.py", "details/blocks.py"])
def test_every_source_is_part_of_the_key(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    hashes = {source_hash(tmp_path)}
    for text in ("a", "b"):
        path.write_text(text)
        hashes.add(source_hash(tmp_path))
    path.rename(path.with_name("other.py"))
    hashes.add(source_hash(tmp_path))
    assert len(hashes) == 4


def key() -> dict[str, Any]:
    problem = AttentionProblem.self_attention(DType.FP16, 1, 128, 4, 64)
    call = AttentionCall(problem, 0.125)
    return tuning_key(GluonAttention(False), call, torch.device("cuda"))


@pytest.mark.parametrize("folder", ["gluon", "triton_kit"])
def test_the_kernel_and_the_kit_are_part_of_the_key(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    before = key()
    copy = tmp_path / folder
    shutil.copytree(Path(flash_attention.__file__).with_name(folder), copy)
    (copy / "new.py").write_text("another grid")
    if folder == "gluon":
        monkeypatch.setattr(GluonAttention, "folder", lambda _: copy)
    else:
        monkeypatch.setattr(kernel_tuning, "KIT", copy)
    after = key()
    assert {name for name in before if before[name] != after[name]} == {"source"}


def test_the_release_of_triton_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    before = key()
    assert before["triton"] == triton.__version__
    assert (before["kind"], before["dtype"], before["d_head"]) == ("gluon-ws", "float16", 64)
    monkeypatch.setattr(triton, "__version__", "3.7.99")
    after = key()
    assert {name for name in before if before[name] != after[name]} == {"triton"}
