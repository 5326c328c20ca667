"""The times of a function on the GPU, with their statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flash_helpers.base.lazy import torch
from flash_helpers.base.timing import CudaTimer, Policy, Timer, interleaved

from ..bench.stats import Summary, summarize, within_fences
from .environment import require_fit

LEAST_REPEATS = 20
STEADY = 0.05  # the relative standard deviation up to which a sample is large enough
_MORE = (50, 100)  # samples where it is not
_P99_NEEDS = 100  # samples; of fewer, p99 is little else than the maximum

Call = Callable[[], object]
Figures = dict[str, Any]


def benchmark_kernel(
    kernel_func: Callable[..., object], *args: Any, warmup: int = 5, repeat: int = 20,
    timer: Timer | None = None,
) -> Figures:  # fmt: skip
    """Milliseconds of kernel_func(*args) between two events on the GPU, launch left out: `min`,
    `p50`, `p90`, `p99` (`max` where there are fewer than 100 samples), `mean`, `std` and `rsd`, its
    ratio to the mean; `n` and `samples_ms`; `steady`: rsd is at most 5 %; `filtered`: the same of
    the samples within 1.5 interquartile ranges of the quartiles.

    Where rsd is above 5 % the samples become 50, and then 100. Raises ValueError for fewer than 20
    of them, UnfitEnvironmentError under CUDA_LAUNCH_BLOCKING=1, and whatever kernel_func raises.
    """
    call = functools.partial(kernel_func, *args)
    return benchmark_kernels({"": call}, warmup=warmup, repeat=repeat, timer=timer)[""]


def benchmark_kernels(
    calls: Mapping[str, Call], *, warmup: int = 5, repeat: int = 20, timer: Timer | None = None,
    seed: int = 0,
) -> dict[str, Figures]:  # fmt: skip
    """The same of several functions in turns: each has as many samples, until all are steady."""
    if repeat < LEAST_REPEATS or warmup < 0:
        raise ValueError(
            f"{warmup} warm-ups and {repeat} repeats: expected 0 or more, and {LEAST_REPEATS} or "
            "more"
        )
    require_fit()
    timer = timer or CudaTimer(torch.device("cuda"), cold_l2=False)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    n_taken = 0
    for n in (repeat, *(more for more in _MORE if more > repeat)):
        policy = Policy(0 if n_taken else warmup, n - n_taken, cold_l2=False)
        for name, bursts in interleaved(calls, policy, timer, seed + n_taken).items():
            taken[name] += [sample.ms for burst in bursts for sample in burst]
        n_taken = n
        if all(summarize(sample).rsd <= STEADY for sample in taken.values()):
            break
    return {name: figures(sample) for name, sample in taken.items()}


def figures(samples: Sequence[float]) -> Figures:
    """What benchmark_kernel returns. Raises ValueError for a sample that cannot be."""
    whole = summarize(samples)
    return {
        **_statistics(whole), "steady": whole.rsd <= STEADY,
        "filtered": _statistics(summarize(within_fences(samples))), "samples_ms": list(samples),
    }  # fmt: skip


def _statistics(s: Summary) -> Figures:
    top = {"p99": s.p99} if s.n >= _P99_NEEDS else {"max": s.maximum}
    return {
        "n": s.n, "min": s.minimum, "p50": s.p50, "p90": s.p90, **top, "mean": s.mean,
        "std": s.stdev, "rsd": s.rsd,
    }  # fmt: skip
