"""What a repeated call of each operator costs the host, beside PyTorch's own: microseconds, and how
many functions of Python the call entered (two: its launches were found in C++). Then the rates of
long rows, by default and with each configuration whose programs share rows, beside a copy and
torch.compile.

    python -m tests.gpu.operator_times [host] [rows]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from flash_attention import operators as ops
from flash_attention.operators.norms.launches import PARTS as LAYER_NORM
from flash_attention.operators.norms.launches import PARTS_RMS as RMS_NORM
from flash_attention.operators.row_softmax.calls import PARTS as SOFTMAX
from flash_attention.operators.rows.op import row_call
from flash_attention.operators.rows.parts_op import PartsConfig

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


_NUMBERS = 2**26
_LENGTHS = tuple(1024 << i for i in range(9))
_TIMES = 15


def event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def rate(call: Call) -> float:
    """GB/s of `_NUMBERS` 16-bit numbers, each read and written once: the median of calls, from the
    GPU's clock, with other memory in its cache and the launch already queued."""
    other = torch.empty(2**27, dtype=torch.uint8, device="cuda")
    found: list[float] = []
    for _ in range(_TIMES + 2):
        other.zero_()
        begin, end = event(), event()
        torch.cuda._sleep(400_000)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return 4 * _NUMBERS / statistics.median(found[2:]) / 1e6


def spaces(columns: int) -> dict[str, list[PartsConfig]]:
    """The first configurations of the kernels whose programs share rows."""
    one, x = half(1, columns), half(2, columns)
    vector, numbers = one[0], torch.empty(2, device="cuda")
    norm = (x, x, vector, vector, x, x, numbers, numbers)
    switches: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": False}
    softmax = row_call(2, columns, (x, x), (x, x), LOG=False, ONLINE=True)
    found = {"softmax": SOFTMAX.space(softmax, 90)}
    for name, op, layer in (("rms_norm", RMS_NORM, False), ("layer_norm", LAYER_NORM, True)):
        call = row_call(2, columns, norm, (x, x, x), (1e-5,), LAYER=layer, BIAS=layer, **switches)
        found[name] = op.space(call, 90)
    return {name: _of_each_block(space) for name, space in found.items()}


def _of_each_block(space: list[PartsConfig]) -> list[PartsConfig]:
    firsts = {config.BLOCK: config for config in reversed(space)}
    return [config for config in space if firsts[config.BLOCK] is config]


def show_rows() -> None:
    """Each result of a configuration is compared with the default's first."""
    for columns in _LENGTHS:
        x = torch.randn(_NUMBERS // columns, columns, device="cuda").bfloat16()
        out, weight, bias = torch.empty_like(x), x[0].clone(), x[1].clone()
        shape = (columns,)
        calls: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], torch.Tensor]]] = {
            "softmax": (partial(ops.softmax, x), partial(torch.softmax, x, -1)),
            "rms_norm": (
                partial(ops.rms_norm, x, weight), partial(F.rms_norm, x, shape, weight, 1e-6),
            ),
            "layer_norm": (
                partial(ops.layer_norm, x, weight, bias),
                partial(F.layer_norm, x, shape, weight, bias),
            ),
        }  # fmt: skip
        print(f"{columns} columns: copy {rate(partial(out.copy_, x)):.0f} GB/s", flush=True)
        for name, (call, theirs) in calls.items():
            expected = call()
            torch._dynamo.reset()  # else it gives up after so many lengths
            compiled = torch.compile(theirs, dynamic=False)
            print(f"  {name:12}default {rate(call):5.0f}; compile {rate(compiled):5.0f}", end="")
            for config in spaces(columns)[name]:
                torch.testing.assert_close(call(config=config), expected, rtol=2e-2, atol=2e-2)
                its = "/".join(map(str, config.as_dict().values()))
                print(f"; {its} {rate(partial(call, config=config)):.0f}", end="", flush=True)
            print()


def show_hosts() -> None:
    empty = host_costs({"empty": lambda: torch.empty((64, 1024), device="cuda")}, rounds=7)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: host, us a call")
    print(f"{'torch.empty':32}{empty['empty']:8.2f}")
    with torch.no_grad():
        show("one pass", operator_calls(), rounds=11)
    show("forward and backward", both_passes(), rounds=5)


def main() -> None:
    wanted = sys.argv[1:] or ["host", "rows"]
    if "host" in wanted:
        show_hosts()
    if "rows" in wanted:
        show_rows()


if __name__ == "__main__":
    main()
