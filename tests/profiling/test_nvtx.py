"""Ranges in the profiler's trace: blocks, functions, modules both ways, and `run_mlp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from flash_lab.profiling import mlp, nvtx


def trace(run: Callable[[], object]) -> list[Any]:
    """The events of the CPU, in the order they began."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        run()
    return sorted(prof.events(), key=lambda event: event.time_range.start)


def inside(events: list[Any], inner: str, outer: str) -> bool:
    """Whether every range `inner` lies in one named `outer`."""
    spans = [event.time_range for event in events if event.name == outer]
    found = [event.time_range for event in events if event.name == inner]
    return bool(found) and all(
        any(s.start <= r.start and r.end <= s.end for s in spans) for r in found
    )


def test_a_block_and_a_function() -> None:
    @nvtx.annotate("square")
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    def run() -> None:
        with nvtx.annotate("all"):
            square(square(torch.ones(3)))

    events = trace(run)
    assert sum(event.name == "square" for event in events) == 2
    assert inside(events, "square", "all") and inside(events, "aten::mul", "square")


def test_ranges_close_when_a_block_raises() -> None:
    def run() -> None:
        with pytest.raises(RuntimeError), nvtx.annotate("fails"):
            raise RuntimeError
        with nvtx.annotate("after"):
            pass

    events = trace(run)
    assert not inside(events, "after", "fails") and len(events) >= 2


def test_nvtx_ranges_are_paired_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: calls.append(name))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    with pytest.raises(KeyError), nvtx.annotate("a"), nvtx.annotate("b"):
        raise KeyError
    assert calls == ["a", "b", "pop", "pop"]


class _Net(torch.nn.Module):
    """Branches, an in-place operation, a tuple as output: what module hooks stumble over."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.left(x)
        y.relu_()
        return y * scale, self.right(x)


def test_every_submodule_forwards_and_backwards() -> None:
    net = _Net()

    def run() -> None:
        with nvtx.annotate_modules(net, prefix="net: "):
            a, b = net(torch.randn(4, 8), scale=torch.ones(()))
        (a.sum() + b.sum()).backward()

    events = trace(run)
    names = {event.name for event in events}
    expected = {f"net: {name}" for name in ("_Net", "left", "right")}
    assert expected | {f"{name}.backward" for name in expected} <= names
    assert inside(events, "net: left", "net: _Net")
    # Two nodes of each linear layer: of the product, and of the transposed weights.
    for name in ("left", "right"):
        assert sum(event.name == f"net: {name}.backward" for event in events) == 2
    assert inside(events, "ReluBackward0", "net: _Net.backward")
    assert not inside(events, "SumBackward0", "net: _Net.backward")  # outside of the model
    assert all(p.grad is not None for p in net.parameters())


def test_modules_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    net = _Net()
    x = torch.randn(4, 8)
    calls: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda.nvtx, "range_push", lambda name: calls.append(name))
        patch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
        with nvtx.annotate_modules(net):
            with pytest.raises(TypeError):
                net(x)  # `scale` is missing: the range closes all the same
            assert calls == ["_Net", "pop"]
    with nvtx.annotate_modules(net, backward=False):
        a, _ = net(x, scale=torch.ones(()))
    events = trace(lambda: (net(x, scale=torch.ones(())), a.sum().backward()))
    assert not {event.name for event in events} & {"_Net", "left", "right", "_Net.backward"}


def test_run_mlp_has_the_ranges_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    events = trace(lambda: mlp.run_mlp(16, 2, 4, 3, use_optimizer=True))
    names = [event.name for event in events if not event.name.startswith("aten")]
    for once in ("define_model", "define_input", "step_0", "step_1", "step_2"):
        assert names.count(once) == 1
    for every_step in ("forward", "backward", "optimizer_step", "layer_0", "layer_1"):
        assert names.count(every_step) == 3
    assert inside(events, "layer_1", "forward")
    assert not inside(events, "forward", "step_1")  # one of three is
    if not torch.cuda.is_available():
        assert "3 steps on the cpu; peak memory is counted on a GPU only" in capsys.readouterr().out


def test_run_mlp_starts_the_profiler_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for a GPU: the seed's loop called it again in every step, and never stopped."""
    calls: list[str] = []
    cuda = torch.cuda
    monkeypatch.setattr(mlp, "get_device", lambda: _Pretended())
    monkeypatch.setattr(cuda, "init", lambda: calls.append("init"))
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda, "reset_peak_memory_stats", lambda _: calls.append("reset"))
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda *_: 3 << 20)
    monkeypatch.setattr(cuda.profiler, "start", lambda: calls.append("start"))
    monkeypatch.setattr(cuda.profiler, "stop", lambda: calls.append("stop"))
    monkeypatch.setattr(mlp, "train_step", lambda *_: calls.append("step"))
    monkeypatch.setattr(mlp, "make_mlp", lambda *_: torch.nn.Identity())
    monkeypatch.setattr(torch, "randn", lambda *_, device: None)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, _: self)
    run = mlp.run_mlp(1, 1, 1, 13)
    # torch refuses to reset the statistics of a GPU that it does not know yet.
    assert calls == ["init", "reset"] + ["step"] * 11 + ["start"] + ["step"] * 2 + ["stop"]
    assert run == mlp.MlpRun("cuda:0", 3 << 20, 2)
    calls.clear()
    assert mlp.run_mlp(1, 1, 1, 11).profiled_steps == 0 and "start" not in calls


class _Pretended:
    type = "cuda"

    def __str__(self) -> str:
        return "cuda:0"


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, -2)])
def test_run_mlp_refuses_sizes_that_are_not_positive(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="it must be at least 1"):
        mlp.run_mlp(*sizes)


@pytest.mark.gpu
def test_run_mlp_counts_memory_on_a_gpu() -> None:
    run = mlp.run_mlp(256, 2, 8, 13, use_optimizer=True)
    parameters = 2 * (256 * 256 + 256)
    assert run.peak_bytes is not None and run.profiled_steps == 2
    assert run.peak_bytes >= 4 * 4 * parameters  # weights, gradients, Adam's two moments, fp32
