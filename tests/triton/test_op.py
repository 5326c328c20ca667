"""A third operator on the Triton kit, from this file alone: launched in the emulator, compiled for
a GPU that is not there, tuned and found in the cache."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_attention.triton_kit.op import Grid, Op, StandInTensor, Work
from flash_attention.triton_kit.tuning import (
    Call,
    Measured,
    NotTunedError,
    TuningCacheWarning,
    best_for,
    tuning_key,
)


@triton.jit(do_not_specialize=["columns"])
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.load(x + tl.program_id(0) * columns + at, mask=inside, other=-float("inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * columns + at, weights / tl.sum(weights, 0), mask=inside)


@dataclass(frozen=True)
class SoftmaxConfig:
    BLOCK: int = 256
    num_warps: int = 4

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Rows:
    rows: int
    columns: int


class RowSoftmax(Op[SoftmaxConfig, Rows]):
    name = "row-softmax"
    config_type = SoftmaxConfig
    written = (1,)

    def kernel(self) -> Any:
        return softmax_kernel

    def space(self, problem: Rows, architecture: int) -> list[SoftmaxConfig]:
        block = triton.next_power_of_2(problem.columns)
        return [SoftmaxConfig(block, warps) for warps in (4, 1, 2)]

    def problems(self, config: SoftmaxConfig, problem: Rows) -> list[str]:
        few = problem.columns > config.BLOCK
        return [f"BLOCK {config.BLOCK}: {problem.columns} columns need more"] if few else []

    def arguments(self, config: SoftmaxConfig, problem: Rows, tensors: Sequence[Any]) -> list[Any]:
        return [*tensors, problem.columns]

    def constants(self, config: SoftmaxConfig, problem: Rows) -> dict[str, Any]:
        return config.as_dict()

    def grid(self, config: SoftmaxConfig, problem: Rows, processors: int) -> Grid:
        return problem.rows, 1, 1

    def stand_ins(self, problem: Rows) -> Sequence[StandInTensor]:
        return [StandInTensor((problem.rows, problem.columns), "float32")] * 2

    def key(self, problem: Rows) -> dict[str, Any]:
        """A tuple is a list in the cache's file."""
        return {**asdict(problem), "strides": (problem.columns, 1)}

    def work(self, problem: Rows) -> Work:
        n = problem.rows * problem.columns
        return Work(flop=5 * n, n_bytes=8 * n)


OP, PROBLEM = RowSoftmax(), Rows(5, 200)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    properties = type("Properties", (), {"multi_processor_count": 132})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def tensors(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn((PROBLEM.columns, PROBLEM.rows), generator=random).T  # not contiguous
    return x, torch.full((PROBLEM.columns, PROBLEM.rows), torch.nan).T


@pytest.mark.parametrize("config", OP.space(PROBLEM, 80), ids=str)
def test_launched_in_the_emulator(config: SoftmaxConfig, seed: int) -> None:
    x, out = tensors(seed)
    emulated.run(OP, config, PROBLEM, (x, out))
    torch.testing.assert_close(out, x.softmax(1))


@pytest.mark.parametrize("architecture", [80, 90])
def test_compiled_offline(architecture: int) -> None:
    found = compile_op(OP, SoftmaxConfig(256, 2), PROBLEM, architecture=architecture)
    assert found.name == "softmax_kernel" and found.n_warps == 2 and found.spill_bytes == 0
    assert f".target sm_{architecture}" in found.ptx


def test_ptxas_runs_once_and_only_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        ran.append(Path(command[0]).name)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    found = compile_op(OP, SoftmaxConfig(256, 1), PROBLEM, architecture=90)
    assert found.ptx and found.shared_bytes == 0 and ran == []
    assert found.cubin.startswith(b"\x7fELF") and found.registers > 0 and not found.warnings
    assert len(ran) == 1 and ran[0].startswith("ptxas")


def test_a_configuration_that_cannot_be_built() -> None:
    words = r"SoftmaxConfig\(BLOCK=128, num_warps=4\) cannot be built: BLOCK 128: 200 columns need"
    with pytest.raises(ValueError, match=words):
        compile_op(OP, SoftmaxConfig(128), PROBLEM)
    with pytest.raises(TypeError, match="config is a Rows: expected a SoftmaxConfig"):
        OP.checked(PROBLEM, PROBLEM)  # type: ignore[arg-type]
    assert OP.checked(None, PROBLEM) == SoftmaxConfig(256, 4)


class Timer:
    """Calls what it is given, which launches; the third is the fastest, the first does not run."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, calls: Sequence[Call], device: torch.device) -> Measured:
        self.asked += 1
        for call in calls:
            call()
        return {1: 2.0, 2: 1.0}, {0: "OutOfResources: registers"}


class Launches:
    """In the place of what @triton.jit made: remembers launches."""

    def __init__(self) -> None:
        self.seen: list[tuple[Grid, int]] = []

    def __getitem__(self, grid: Grid) -> Any:
        return lambda *_, num_warps, **__: self.seen.append((grid, num_warps))


def test_tuned_once_and_found_in_the_cache(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    launches, timer, data = Launches(), Timer(), tensors(seed)
    monkeypatch.setattr(RowSoftmax, "kernel", lambda _: launches)
    with pytest.raises(NotTunedError, match="nothing was measured yet for row-softmax, Rows"):
        best_for(OP, PROBLEM, data, measure_now=False)
    with pytest.warns(TuningCacheWarning, match="1 of 3 configurations do not run"):
        first = best_for(OP, PROBLEM, data, measure=timer)
    second = best_for(OP, PROBLEM, data, measure_now=False)
    assert timer.asked == 1
    assert launches.seen == [((5, 1, 1), warps) for warps in (4, 1, 2)]
    assert first.config == second.config == SoftmaxConfig(256, 2)
    assert not first.cached and second.cached


def test_what_the_key_holds() -> None:
    key = tuning_key(OP, PROBLEM, torch.device("cuda"))
    assert (key["kind"], key["rows"], key["columns"]) == ("row-softmax", 5, 200)
    assert OP.folder() == Path(__file__).parent
    assert OP.work(PROBLEM) == Work(5000, 8000)
