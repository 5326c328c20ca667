"""Builds the backward kernels (with a few forward ones), tests them, and times them beside
PyTorch's FlashAttention-2, on the GPU of this machine:

    python -m tests.gpu.backward_times [--seconds 130] FOLDER

Prints a short table, and writes it to FOLDER/backward.txt line by line. After so many seconds no
further problem is timed, and the last line says how many were left out; the tests may take a third
of what building leaves. Exit codes: 0 all passed, 1 a test failed, 3 something was left out.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.build import driver
from flash_helpers.build.plan import make_plan
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sets import get_kernels_to_build

ROOT = Path(__file__).resolve().parents[2]
HEADS = 16
SLEEP = 3_000_000  # cycles, 1.5 ms
TOKENS = 16 * 1024
Call = Callable[[], object]


def build(*words: str) -> None:
    configs = tuple(get_kernels_to_build(*words))
    plan = replace(make_plan(), configs=configs)
    driver.build_plan(plan, publish_to=[ROOT / "flash_attention"])


def milliseconds(calls: dict[str, Call], rounds: int = 5, repeats: int = 3) -> dict[str, float]:
    """Medians over rounds, in which all take turns, each time in another order: where the GPU is at
    the power it may draw, a call is the faster the less the one before it drew. The GPU sleeps
    while the host queues the calls: how long that takes is measured elsewhere (host_parts.py)."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    orders = random.Random(0)
    for number in range(rounds + 2):
        for name, call in orders.sample(list(calls.items()), len(calls)):
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            torch.cuda._sleep(SLEEP)  # type: ignore[no-untyped-call]
            start.record()
            for _ in range(repeats):
                call()
            stop.record()
            stop.synchronize()
            if number >= 2:
                found[name].append(start.elapsed_time(stop) / repeats)
    return {name: statistics.median(times) for name, times in found.items()}


def problem_of(d_head: int, seq_len: int, causal: bool) -> AttentionProblem:
    batch = max(1, TOKENS // seq_len)
    whole = AttentionProblem.self_attention(
        DType.FP16, batch, seq_len, HEADS, d_head, causal=causal
    )
    return replace(whole, gradients=True)


def calls_for(problem: AttentionProblem, configs: Sequence[KernelConfig]) -> dict[str, Call]:
    """Backward alone: PyTorch's, ours by configuration, and the two halves of ours; and forward and
    backward together."""
    q, k, v = problem.tensors(0, "cuda")
    d_o = torch.randn_like(q)
    attend: Any = flash_attention.flash_attn_func
    o, lse, _ = attend(q, k, v, causal=problem.causal, return_attn_probs=True)
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    sdpa: Any = torch.nn.functional.scaled_dot_product_attention

    def torchs_forward() -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            out: torch.Tensor = sdpa(
                *(x.transpose(1, 2) for x in leaves), is_causal=problem.causal
            ).transpose(1, 2)
        return out

    recorded = torchs_forward()

    def torchs() -> object:
        return torch.autograd.grad(recorded, leaves, d_o, retain_graph=True)

    def ours(config: KernelConfig, wanted: str) -> Call:
        return lambda: flash_attention.backward(
            config, d_o, q, k, v, o, lse, causal=problem.causal, wanted=tuple(wanted)
        )

    calls: dict[str, Call] = {"FA2": torchs}
    for config in configs:
        calls[f"{config} all"] = ours(config, "qkv")
        calls[f"{config} dK dV"] = ours(config, "kv")
        calls[f"{config} dQ"] = ours(config, "q")

    def torchs_both() -> object:
        return torch.autograd.grad(torchs_forward(), leaves, d_o)

    def ours_both() -> object:
        return torch.autograd.grad(attend(*leaves, causal=problem.causal), leaves, d_o)

    return {**calls, "FA2 forward+backward": torchs_both, "ours forward+backward": ours_both}


def problems() -> list[AttentionProblem]:
    """The ones that say most come first."""
    return [
        problem_of(d_head, seq_len, causal)
        for seq_len in (8192, 2048, 512)
        for d_head in (128, 64, 256, 96, 192)
        for causal in (False, True)
    ]


def row(problem: AttentionProblem) -> str:
    """TFLOP/s by name, in one line."""
    available = flash_attention.available_kernels()
    built = [c for c in available if c.GRADIENTS and not c.SERVES]
    configs = [c for c in built if (c.d_head, c.dtype) == (problem.d_head, problem.dtype)]
    cells = []
    for name, ms in milliseconds(calls_for(problem, configs)).items():
        factor = 1.4 if "forward" in name else 1.0
        cells.append(f"{name} {factor * problem.matmul_flop() / ms / 1e9:.0f} ({ms:.3f} ms)")
    return f"{problem}:\n  " + "; ".join(cells)


def run_tests(seconds: float) -> tuple[int, str]:
    """Exit code (3: they did not end in time) and the end of what they printed."""
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "tests/gpu/test_backward.py"]
    try:
        done = subprocess.run(
            tests, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return 3, f"tests: not done after {seconds:.0f} s"
    return min(done.returncode, 1), done.stdout[-1500 if done.returncode else -200 :].strip()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=130)
    options = parser.parse_args(argv)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        (folder / "backward.txt").write_text("\n".join([*lines, ""]))
        print(line, flush=True)

    build("ampere-bwd", "hopper-bwd", "hopper-smoke")
    say(f"{torch.cuda.get_device_name()}; built, {end - time.monotonic():.0f} s left")
    code, text = run_tests(max(20.0, (end - time.monotonic()) / 3))
    say(text)
    say("TFLOP/s of 2.5 (forward+backward: 3.5) x forward")
    todo = problems()
    while todo and time.monotonic() < end:
        say(row(todo.pop(0)))
    if todo:
        say(f"{len(todo)} problems left out: the time is over")
        code = code or 3
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
