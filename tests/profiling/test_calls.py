"""`benchmark`, `profile`, the stacks of a profile, and the flame graph that is drawn from them."""

from __future__ import annotations

import itertools
import random
import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flash_helpers.profiling import benchmark, profile
from flash_helpers.profiling.flamegraph import flame_graph
from flash_helpers.profiling.nvtx import annotate
from flash_helpers.profiling.stacks import CPU_TIME, GPU_TIME, OTHER_THREADS, fold, render

SVG = "{http://www.w3.org/2000/svg}"


def test_benchmark_is_the_mean_of_the_trials() -> None:
    calls: list[float] = []

    def run() -> None:
        calls.append(time.perf_counter())
        time.sleep(0.05 if len(calls) <= 2 else 0.01)  # the warm-ups are slower

    milliseconds = benchmark("sleep", run, num_warmups=2, num_trials=3)
    assert len(calls) == 5 and 9 < milliseconds < 40
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


def event(name: str, start: float, end: float, **more: Any) -> Any:
    known = {"id": 0, "thread": 1, "cpu_parent": None, "is_user_annotation": False,
             "device": "CPU", "self_cpu_time_total": end - start}  # fmt: skip
    values = known | more
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    device = SimpleNamespace(name=values.pop("device"))
    return SimpleNamespace(name=name, time_range=span, device_type=device, **values)


def gpu_events() -> list[Any]:
    """A range with an operation of torch that launches a kernel, and a call of an extension that
    launches another, which the profiler links to nothing; a kernel of the backward pass; and one
    from before the range."""
    root = event("all", 0, 100)
    op = event("aten::mm", 10, 20, cpu_parent=root)
    ours = event("<built-in method launch of type object at 0x7f>", 30, 60, cpu_parent=root)
    inner = event("check", 31, 33, cpu_parent=ours)
    backward = event("MmBackward0", 70, 90, thread=2)
    early = event("setup", -20, -5)
    return [
        root, op, ours, inner, backward, early,
        event("cudaLaunchKernel", 12, 13, id=7, cpu_parent=op),
        event("cuLaunchKernelEx", 40, 41, id=8, thread=4711),
        event("cudaLaunchKernel", 71, 72, id=9, thread=2, cpu_parent=backward),
        event("cudaLaunchKernel", -10, -9, id=10, thread=4711),
        event("gemm", 200, 230, id=7, device="CUDA"),
        event("flash_fwd", 230, 290, id=8, device="CUDA"),
        event("gemm", 290, 294.5, id=9, device="CUDA"),
        event("fill", 100, 101, id=10, device="CUDA"),
        event("orphan", 300, 302, id=99, device="CUDA"),
        event("all", 200, 300, device="CUDA", is_user_annotation=True),
    ]  # fmt: skip


def test_kernels_stand_on_what_launched_them() -> None:
    stacks, what = fold(gpu_events(), "all")
    assert what == GPU_TIME
    assert stacks == {
        ("all", "aten::mm", "gemm"): 30_000,
        ("all", "launch (built-in)", "flash_fwd"): 60_000,
        ("all", OTHER_THREADS, "MmBackward0", "gemm"): 4_500,
        ("all", "(launch not recorded)", "orphan"): 2_000,
    }


def test_without_kernels_the_time_is_the_cpus() -> None:
    on_cpu = [e for e in gpu_events() if e.device_type.name == "CPU"]
    stacks, what = fold(on_cpu, "all")
    assert what == CPU_TIME
    assert stacks["all", "aten::mm"] == 10_000 and stacks[("all",)] == 100_000
    assert not any("setup" in stack for stack in stacks)  # it was before the range


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
