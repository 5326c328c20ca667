"""`benchmark`, `profile`, the stacks of a profile, and the flame graph that is drawn from them."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_lab.profiling import benchmark, profile
from flash_lab.profiling.flamegraph import flame_graph
from flash_lab.profiling.nvtx import annotate
from flash_lab.profiling.stacks import CPU_TIME, GPU_TIME, OTHER_THREADS, fold, render
from flash_lab.profiling.trace import parse

SVG = "{http://www.w3.org/2000/svg}"


def test_benchmark_is_the_mean_of_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still between the calls."""
    now = 100.0
    durations = [5.0, 5.0, 0.010, 0.020, 0.060]  # the warm-ups are slower
    left = iter(durations)

    def run() -> None:
        nonlocal now
        now += next(left)

    monkeypatch.setattr("flash_lab.profiling.calls.time.perf_counter", lambda: now)
    milliseconds = benchmark("steps", run, num_warmups=2, num_trials=3)
    assert list(left) == [] and milliseconds == pytest.approx(30.0)
    monkeypatch.undo()
    for counts in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="expected 0 or more, and 1 or more"):
            benchmark("sleep", run, *counts)


def work() -> torch.Tensor:
    with annotate("products"):
        x = torch.randn(300, 300)
        for _ in range(3):
            x = x @ x
    return x.relu()


def test_profile_returns_the_table() -> None:
    table = profile("work", work)
    assert "aten::mm" in table and "products" in table
    rows = [line for line in table.splitlines() if re.match(r" +\S+ +\d", line)]
    assert 0 < len(rows) <= 10
    with pytest.raises(ValueError, match="expected 0 or more"):
        profile("work", work, num_warmups=-1)


def test_profile_writes_stacks_and_a_flame_graph(tmp_path: Path) -> None:
    profile("a/b: work", work, with_stack=True, out_dir=tmp_path / "var")
    names = sorted(path.name for path in (tmp_path / "var").iterdir())
    assert names == ["stacks_a_b__work.svg", "stacks_a_b__work.txt"]
    lines = (tmp_path / "var" / "stacks_a_b__work.txt").read_text().splitlines()
    stacks = dict(line.rsplit(" ", 1) for line in lines)
    assert len(stacks) == len(lines)
    # Whole paths, from our function through the range to the operation, and no profiler in them.
    ours = [stack for stack in stacks if re.search(r"test_calls\.py\(\d+\): work;products;", stack)]
    assert any(stack.endswith(";aten::matmul;aten::mm") for stack in ours)
    assert all(stack.startswith("a/b: work") for stack in stacks)
    assert not any("start_trace" in stack or "_transit_action" in stack for stack in stacks)
    product = sum(int(ns) for stack, ns in stacks.items() if stack.endswith("aten::mm"))
    assert product > 0.05 * sum(map(int, stacks.values()))
    ET.fromstring((tmp_path / "var" / "stacks_a_b__work.svg").read_text())


def event(kind: str, name: str, begin: float, end: float, thread: int = 1, id: int = 0) -> Any:
    """As torch.profiler writes it into a trace."""
    return {"ph": "X", "cat": kind, "name": name, "tid": thread, "ts": begin, "dur": end - begin,
            "args": {"correlation": id}}  # fmt: skip


def gpu_trace() -> list[Any]:
    """A range with an operation of torch that launches a kernel, and a call of an extension that
    launches another; a kernel of the backward pass; and one from before the range. The range
    begins in one function and ends in another."""
    return [
        event("python_function", "__enter__", -1, 0.5),
        event("user_annotation", "all", 0, 100),
        event("python_function", "__exit__", 99, 101),
        event("cpu_op", "aten::mm", 10, 20),
        event("python_function", "<built-in method launch of type object at 0x7f>", 30, 60),
        event("python_function", "check", 31, 33),
        event("cpu_op", "MmBackward0", 70, 90, thread=2),
        event("python_function", "setup", -20, -5),
        event("cpu_op", "of another program", 200, 210, thread=3),
        event("cuda_runtime", "cudaLaunchKernel", 12, 13, id=7),
        event("cuda_driver", "cuLaunchKernelEx", 40, 41, id=8),
        event("cuda_runtime", "cudaLaunchKernel", 71, 72, thread=2, id=9),
        event("cuda_runtime", "cudaLaunchKernel", -10, -9, id=10),
        event("cuda_runtime", "cudaLaunchKernel", 205, 206, thread=3, id=11),
        event("kernel", "gemm", 200, 230, id=7),
        event("kernel", "flash_fwd", 230, 290, id=8),
        event("kernel", "gemm", 290, 294.5, id=9),
        event("gpu_memset", "fill", 100, 101, id=10),
        event("kernel", "theirs", 301, 302, id=11),
        event("kernel", "orphan", 300, 302, id=99),
        event("gpu_user_annotation", "all", 200, 300),
        {"ph": "M", "name": "process_name"},
    ]  # fmt: skip


def test_kernels_stand_on_what_launched_them() -> None:
    stacks, what = fold(parse(gpu_trace()), "all")
    assert what == GPU_TIME
    assert stacks == {
        ("all", "aten::mm", "gemm"): 30_000,
        ("all", "launch (built-in)", "flash_fwd"): 60_000,
        ("all", OTHER_THREADS, "MmBackward0", "gemm"): 4_500,
        ("all", "(launch not recorded)", "orphan"): 2_000,
    }


def test_without_kernels_the_time_is_the_cpus() -> None:
    on_cpu = [e for e in gpu_trace() if e.get("cat") not in ("kernel", "gpu_memset")]
    stacks, what = fold(parse(on_cpu), "all")
    assert what == CPU_TIME
    assert stacks == {
        ("all",): 60_000,
        ("all", "aten::mm"): 10_000,
        ("all", "launch (built-in)"): 28_000,
        ("all", "launch (built-in)", "check"): 2_000,
        ("all", OTHER_THREADS, "MmBackward0"): 20_000,
    }


def test_a_range_in_a_range_of_the_same_name() -> None:
    twice = [event("user_annotation", "all", 20, 80), *gpu_trace()]
    stacks, _ = fold(parse(twice), "all")
    assert stacks["all", "all", "launch (built-in)", "flash_fwd"] == 60_000


def test_folded_stacks_have_one_separator() -> None:
    text = render({("a", "operator;(int)", "b\nc"): 5, ("a",): 7})
    assert text == "a 7\na;operator,(int);b c 5\n"


def boxes(svg: str) -> dict[str, tuple[float, float, float]]:
    """(left, width, top) of every frame, by its title."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and title.text and rect is not None
        place = [float(rect.get(name) or "nan") for name in ("x", "width", "y")]
        found[title.text] = (place[0], place[1], place[2])
    return found


def test_the_flame_graph_is_to_scale() -> None:
    stacks = {("run", "a"): 600, ("run", "b", "<kernel & co>"): 300, ("run",): 100}
    found = boxes(flame_graph(stacks, "title", GPU_TIME))
    whole = found["run: 1 us of GPU time, 100.0%"]
    a = found["a: 600 ns of GPU time, 60.0%"]
    b = found["b: 300 ns of GPU time, 30.0%"]
    kernel = found["<kernel & co>: 300 ns of GPU time, 30.0%"]
    assert a[1] == pytest.approx(0.6 * whole[1], abs=0.02)
    assert b[1] == kernel[1] == pytest.approx(0.3 * whole[1], abs=0.02)
    assert a[0] == whole[0] and b[0] == pytest.approx(a[0] + a[1], abs=0.02)  # side by side
    assert b[0] == kernel[0] and whole[2] > a[2] == b[2] > kernel[2]  # callers are below


def test_no_box_leaves_its_caller(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.randrange(1, 7) for _ in range(200)]
    stacks = {tuple(chance.choices("abcde", k=n)): chance.randrange(10**6) for n in lengths}
    svg = flame_graph(stacks, "t", CPU_TIME)
    rows: dict[float, list[tuple[float, float]]] = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        left, width, top = (float(rect.get(name) or "nan") for name in ("x", "width", "y"))
        rows.setdefault(top, []).append((left, left + width))
    tops = sorted(rows)
    for above, below in itertools.pairwise(tops):
        for left, right in rows[above]:
            assert any(a - 0.02 <= left and right <= b + 0.02 for a, b in rows[below])
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.02 for a, b in itertools.pairwise(spans))


def test_thin_boxes_are_left_out_and_counted() -> None:
    svg = flame_graph({("run", "big"): 10**9, ("run", "thin", "thinner"): 1000}, "t", CPU_TIME)
    assert len(boxes(svg)) == 2 and "left out (0.0%)" in svg
    with pytest.raises(ValueError, match="nothing to draw"):
        flame_graph({}, "t", CPU_TIME)


@pytest.mark.gpu
def test_our_kernel_is_in_the_flame_graph_of_a_gpu(tmp_path: Path) -> None:
    import flash_attention

    q = torch.randn(2, 512, 4, 128, device="cuda", dtype=torch.float16)

    def run() -> None:
        flash_attention.flash_attn_func(q, q, q)
        q.relu()

    table = profile("ours", run, with_stack=True, out_dir=tmp_path)
    text = (tmp_path / "stacks_ours.txt").read_text()
    assert re.search(r"flash_attn_func;.*flash_fwd_\w+ \d+$", text, re.MULTILINE)
    assert "(launch not recorded)" not in text and "aten::" in text
    assert "flash_fwd" in table and "GPU time" in (tmp_path / "stacks_ours.svg").read_text()
