"""`python -m flash_attention.operators NAME`: runs one operator on random numbers, compares it with
PyTorch's and prints how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from flash_helpers.base.timing import CudaTimer, Policy, interleaved
from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser

from .. import operators

Tensors = tuple[torch.Tensor, ...]
Call = Callable[..., Any]  # a tensor, or several
_SIZES = (1_000_000, 4_000_000, 16_000_000)
_EMULATED_SIZES = (10_000,)
_POLICY = Policy(warmups=5, repeats=20, cold_l2=False)


_COLUMNS = 1000


def _moments(x: torch.Tensor) -> Tensors:
    var, mean = torch.var_mean(x.float(), -1, correction=0)
    return mean, var


def _first_class(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)


@dataclass(frozen=True)
class Shown:
    """An operator, the same in PyTorch, how many tensors of a size it takes, and in how many
    columns their elements lie (0: one row)."""

    call: Call
    reference: Call
    n_inputs: int = 1
    columns: int = 0


SHOWN = {
    "vector_add": Shown(lambda x, y: operators.add(x, y), torch.add, 2),
    "scalar_add": Shown(lambda x: operators.add_scalar(x, 0.5), lambda x: x + 0.5),
    "relu": Shown(lambda x: operators.relu(x), F.relu),
    "gelu": Shown(lambda x: operators.gelu(x), F.gelu),
    "gelu_tanh": Shown(
        lambda x: operators.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")
    ),
    "silu": Shown(lambda x: operators.silu(x), F.silu),
    "mean_var": Shown(lambda x: operators.mean_var(x), _moments, 1, _COLUMNS),
    "softmax": Shown(lambda x: operators.softmax(x), lambda x: x.softmax(-1), 1, _COLUMNS),
    "log_softmax": Shown(
        lambda x: operators.log_softmax(x), lambda x: x.log_softmax(-1), 1, _COLUMNS
    ),
    "layer_norm": Shown(
        lambda x: operators.layer_norm(x), lambda x: F.layer_norm(x, x.shape[-1:]), 1, _COLUMNS
    ),
    "rms_norm": Shown(
        lambda x: operators.rms_norm(x), lambda x: F.rms_norm(x, x.shape[-1:], None, 1e-6), 1,
        _COLUMNS,
    ),
    "cross_entropy": Shown(
        lambda x: operators.cross_entropy(x, _first_class(x)),
        lambda x: F.cross_entropy(x.float(), _first_class(x)), 1, _COLUMNS,
    ),
    "matmul": Shown(
        lambda x, y: operators.matmul(x, y.T), lambda x, y: x @ y.T, 2, _COLUMNS
    ),
}  # fmt: skip
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: right; 1: some result is not PyTorch's."""
    parser = tool_parser("flash_attention.operators", __doc__ or "")
    parser.add_argument("name", choices=sorted(SHOWN), metavar="NAME", help=", ".join(SHOWN))
    parser.add_argument("--n", type=_positive, nargs="+", help="numbers of elements")
    parser.add_argument("--dtype", choices=_DTYPES, default="fp32")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    given = parser.parse_args(arguments)
    on_gpu = torch.cuda.is_available()
    wrong = 0
    for n in given.n or (_SIZES if on_gpu else _EMULATED_SIZES):
        shown = SHOWN[given.name]
        inputs = _draw(shown, n, _DTYPES[given.dtype], given.seed, on_gpu)
        outputs = _tensors(shown.call(*inputs))
        wrong += not _right(outputs, _tensors(shown.reference(*inputs)))
        n_bytes = sum(x.nbytes for x in (*inputs, *outputs))
        print(line(n, milliseconds(shown.call, inputs), n_bytes, on_gpu), flush=True)
    return EXIT_FAILED if wrong else EXIT_OK


def command() -> int:
    return guarded("flash_attention.operators", main)


def line(n: int, ms: float, n_bytes: int, on_gpu: bool) -> str:
    """What is printed of one size; `n_bytes` are read and written."""
    text = f"n={n} avg={ms:.4g}ms effective_bw={n_bytes / ms / 1e6:.4g} GB/s"
    return text if on_gpu else f"{text} (in the emulator, on the CPU)"


def milliseconds(call: Call, inputs: Tensors) -> float:
    """The average of one call, on a GPU between events, else by the wall clock."""
    device = inputs[0].device
    if device.type == "cuda":
        timer = CudaTimer(device, cold_l2=False)
        bursts = interleaved({"call": lambda: call(*inputs)}, _POLICY, timer, seed=0)
        taken = [sample.ms for burst in bursts["call"] for sample in burst]
        return sum(taken) / len(taken)
    began = time.perf_counter()
    call(*inputs)
    return (time.perf_counter() - began) * 1e3


def _draw(shown: Shown, n: int, dtype: torch.dtype, seed: int, on_gpu: bool) -> Tensors:
    """Tensors of n elements; those in rows have the last multiple of the columns up to n."""
    shape = (max(1, n // shown.columns), shown.columns) if shown.columns else (n,)
    random = torch.Generator().manual_seed(seed)
    made = (torch.randn(shape, generator=random).to(dtype) for _ in range(shown.n_inputs))
    return tuple(x.cuda() if on_gpu else x for x in made)


def _tensors(result: Any) -> Tensors:
    return result if isinstance(result, tuple) else (result,)


def _right(found: Tensors, expected: Tensors) -> bool:
    try:
        torch.testing.assert_close(found, expected, check_dtype=False)
    except AssertionError as error:
        print(f"wrong: {error}")
        return False
    return True


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value
