"""What a repeated call of each operator costs the host, beside PyTorch's own: microseconds, and how
many functions of Python the call entered (one: its launches were found in C++).

    python -m tests.gpu.operator_times
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from flash_attention import operators as ops

from .times import host_costs

Call = Callable[[], object]
_ROWS, _COLUMNS, _CLASSES, _SIZE = 64, 1024, 4096, 512


def operator_calls() -> dict[str, tuple[Call, Call]]:
    """Ours and PyTorch's, small enough that a GPU is faster than its host."""
    x, y = half(_ROWS, _COLUMNS), half(_ROWS, _COLUMNS)
    weight, bias = half(_COLUMNS), half(_COLUMNS)
    logits, target = half(_ROWS, _CLASSES), torch.zeros(_ROWS, dtype=torch.int64, device="cuda")
    a, b = half(_SIZE, _SIZE), half(_SIZE, _SIZE)
    last = torch.channels_last
    image = half(2, 64, 14, 14).contiguous(memory_format=last)
    taps = half(64, 64, 3, 3).contiguous(memory_format=last)
    shape = (_COLUMNS,)
    return {
        "add": (lambda: ops.add(x, y), lambda: torch.add(x, y)),
        "add, of one tensor": (lambda: ops.add(x, x), lambda: torch.add(x, x)),
        "add, out": (lambda: ops.add(x, y, out=y), lambda: torch.add(x, y, out=y)),
        "gelu": (lambda: ops.gelu(x), lambda: F.gelu(x)),
        "softmax": (lambda: ops.softmax(x), lambda: torch.softmax(x, -1)),
        "rms_norm": (
            lambda: ops.rms_norm(x, weight), lambda: F.rms_norm(x, shape, weight, 1e-6),
        ),
        "layer_norm": (
            lambda: ops.layer_norm(x, weight, bias), lambda: F.layer_norm(x, shape, weight, bias),
        ),
        "mean_var": (lambda: ops.mean_var(x), lambda: torch.var_mean(x, -1)),
        "cross_entropy": (
            lambda: ops.cross_entropy(logits, target), lambda: F.cross_entropy(logits, target),
        ),
        "matmul": (lambda: ops.matmul(a, b), lambda: torch.mm(a, b)),
        "matmul, persistent": (
            lambda: ops.matmul(a, b, version="persistent"), lambda: torch.mm(a, b),
        ),
        "conv2d": (
            lambda: ops.conv2d(image, taps, padding=1), lambda: F.conv2d(image, taps, padding=1),
        ),
    }  # fmt: skip


def both_passes() -> dict[str, tuple[Call, Call]]:
    """Forward and backward through autograd."""
    x = half(_ROWS, _COLUMNS).requires_grad_()
    weight, bias = half(_COLUMNS).requires_grad_(), half(_COLUMNS).requires_grad_()
    logits = half(_ROWS, _CLASSES).requires_grad_()
    target = torch.zeros(_ROWS, dtype=torch.int64, device="cuda")
    a, b = half(_SIZE, _SIZE).requires_grad_(), half(_SIZE, _SIZE).requires_grad_()
    shape, grad, of_product = (_COLUMNS,), half(_ROWS, _COLUMNS), half(_SIZE, _SIZE)

    def of(function: Callable[[], Any], with_grad: torch.Tensor | None, *inputs: Any) -> Call:
        return lambda: torch.autograd.grad(function(), inputs, with_grad)

    return {
        "gelu": (of(lambda: ops.gelu(x), grad, x), of(lambda: F.gelu(x), grad, x)),
        "softmax": (
            of(lambda: ops.softmax(x), grad, x), of(lambda: torch.softmax(x, -1), grad, x),
        ),
        "rms_norm": (
            of(lambda: ops.rms_norm(x, weight), grad, x, weight),
            of(lambda: F.rms_norm(x, shape, weight, 1e-6), grad, x, weight),
        ),
        "layer_norm": (
            of(lambda: ops.layer_norm(x, weight, bias), grad, x, weight, bias),
            of(lambda: F.layer_norm(x, shape, weight, bias), grad, x, weight, bias),
        ),
        "cross_entropy": (
            of(lambda: ops.cross_entropy(logits, target), None, logits),
            of(lambda: F.cross_entropy(logits, target), None, logits),
        ),
        "matmul": (
            of(lambda: ops.matmul(a, b), of_product, a, b),
            of(lambda: torch.mm(a, b), of_product, a, b),
        ),
    }  # fmt: skip


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float16, device="cuda")


def python_frames(call: Call) -> int:
    """Functions of Python that it enters, but for the one that is given."""
    found: list[str] = []
    call()
    call()
    sys.setprofile(lambda frame, event, _: found.append(event) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(found) - 1


def show(title: str, calls: dict[str, tuple[Call, Call]], rounds: int) -> None:
    frames = {name: python_frames(ours) for name, (ours, _) in calls.items()}
    both = {f"{name}:{i}": call for name, pair in calls.items() for i, call in enumerate(pair)}
    costs = host_costs(both, rounds)
    print(f"{title:32}{'ours':>8}{'torch':>8}{'frames':>8}")
    for name in calls:
        ours, theirs = costs[f"{name}:0"], costs[f"{name}:1"]
        print(f"{name:32}{ours:8.2f}{theirs:8.2f}{frames[name]:8}", flush=True)


def main() -> None:
    empty = host_costs({"empty": lambda: torch.empty((64, 1024), device="cuda")}, rounds=7)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: host, us a call")
    print(f"{'torch.empty':32}{empty['empty']:8.2f}")
    with torch.no_grad():
        show("one pass", operator_calls(), rounds=11)
    show("forward and backward", both_passes(), rounds=5)


if __name__ == "__main__":
    main()
