"""Builds the backward kernels (with a few forward ones), tests them, and times them beside
PyTorch's FlashAttention-2, on the GPU of this machine:

    python -m tests.gpu.backward_times FOLDER

Writes FOLDER/backward.txt and prints the same. Two to three minutes on 16 cores. Exit codes: 0 all
passed, 1 a test failed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
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
TOKENS = 16 * 1024
Call = Callable[[], object]


def build() -> None:
    configs = tuple(get_kernels_to_build("ampere-bwd", "hopper-smoke"))
    plan = replace(make_plan(), configs=configs)
    driver.build_plan(plan, publish_to=[ROOT / "flash_attention"])


def milliseconds(calls: dict[str, Call], rounds: int = 7, repeats: int = 5) -> dict[str, float]:
    """Medians over rounds, in which all take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name, call in calls.items():
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
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


def table() -> list[str]:
    lines = [torch.cuda.get_device_name(), "TFLOP/s of 2.5 (forward+backward: 3.5) x forward; ms"]
    built = [c for c in flash_attention.available_kernels() if c.GRADIENTS]
    for d_head in (64, 96, 128):
        configs = [c for c in built if (c.d_head, c.dtype) == (d_head, DType.FP16)]
        for causal in (False, True):
            for seq_len in (512, 2048, 8192):
                problem = problem_of(d_head, seq_len, causal)
                lines.append(f"\n{problem}")
                times = milliseconds(calls_for(problem, configs))
                for name, ms in times.items():
                    factor = 1.4 if "forward" in name else 1.0
                    tflops = factor * problem.matmul_flop() / ms / 1e9
                    lines.append(f"  {tflops:7.1f} {ms:9.4f}  {name}")
    return lines


def main(argv: Sequence[str]) -> int:
    (folder,) = map(Path, argv)
    folder.mkdir(parents=True, exist_ok=True)
    build()
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "tests/gpu/test_backward.py"]
    done = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, check=False)
    text = "\n".join([done.stdout[-3000:], *table()])
    (folder / "backward.txt").write_text(f"{text}\n")
    print(text)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
