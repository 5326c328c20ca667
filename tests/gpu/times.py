"""Times that hold on any machine: each beside another one, taken in the same process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Call = Callable[[], object]

# Of what PyTorch's own attention costs the host. A remembered call took 0.46 to 0.50 of it on the
# machines that were tried (docs/results/sm80-forward-h200.md), one that is checked anew more than
# all of it.
HOST_BAR = 2 / 3
_ROUNDS, _CALLS = 41, 250


@dataclass(frozen=True)
class HostCost:
    """Medians over rounds. `ratio` is that of the rounds' own ratios: what slows the host down for
    a while slows both halves of a round."""

    ours_us: float
    torchs_us: float
    ratio: float

    def __str__(self) -> str:
        return (
            f"host cost of a call: {self.ours_us:.2f} us, PyTorch's FlashAttention-2 "
            f"{self.torchs_us:.2f} us, ratio {self.ratio:.3f}"
        )


def host_cost(ours: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> HostCost:
    """What `ours` costs the host beside PyTorch's FlashAttention-2 on the same (batch, seq, heads,
    d) tensors, in turns."""
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def torchs() -> object:
        return torch.nn.functional.scaled_dot_product_attention(qt, kt, vt)

    rounds: list[tuple[float, float]] = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        for _ in range(2):
            microseconds(ours), microseconds(torchs)
        for i in range(_ROUNDS):
            if i % 2:
                second = microseconds(torchs)
                rounds.append((microseconds(ours), second))
            else:
                rounds.append((microseconds(ours), microseconds(torchs)))
    return HostCost(
        statistics.median(a for a, _ in rounds),
        statistics.median(b for _, b in rounds),
        statistics.median(a / b for a, b in rounds),
    )


def host_costs(calls: dict[str, Call], rounds: int = 21) -> dict[str, float]:
    """Microseconds of the host for one call of each, medians over rounds in which all take
    turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name, call in calls.items():
            taken = microseconds(call)
            if number >= 2:
                found[name].append(taken)
    return {name: statistics.median(times) for name, times in found.items()}


def microseconds(call: Call) -> float:
    """Of one call on the host; few enough that the launches never wait for the GPU."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - began) / _CALLS * 1e6


def has_plausible_unit(milliseconds: float, call: Call) -> bool:
    """Whether they may be those of one `call`: a wrong unit is off by a factor of 1000, the host
    and the clocks of the GPU by far less than 100."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    call()
    start.record()
    for _ in range(20):
        call()
    stop.record()
    stop.synchronize()
    by_hand = start.elapsed_time(stop) / 20
    print(f"{milliseconds:.4f} ms; by hand, with what the host takes, {by_hand:.4f} ms")
    return bool(by_hand / 100 < milliseconds < by_hand * 100)
