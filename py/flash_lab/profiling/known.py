"""The five kernels whose bottleneck is known by construction: run them under ncu, and see whether
`explain` names each right."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bench.ncu_metrics import MetricError
from ..bench.ncu_read import Launch
from ..waves.programs import build
from . import bottleneck as b
from .bottleneck_metrics import values_of

PREFIX = "known_"
KERNEL_FILTER = f"regex:{PREFIX}.*"
# What limits each, by the symbol of its kernel.
KNOWN = {
    PREFIX + name.replace("-", "_"): name
    for name in (b.MEMORY, b.CONFLICTS, b.SPILLING, b.LOW_OCCUPANCY, b.TENSOR)
}
FILES = tuple(f"{symbol}.cu" for symbol in KNOWN)


@dataclass(frozen=True)
class Verdict:
    """`found` is None where there was nothing to explain; `error` says why."""

    symbol: str
    expected: str
    found: b.Finding | None
    error: str = ""

    @property
    def right(self) -> bool:
        return self.found is not None and self.found.name == self.expected

    def __str__(self) -> str:
        named = self.found.name if self.found else f"nothing ({self.error})"
        return f"{'right' if self.right else 'WRONG'}  {self.symbol}: named {named}"


def program(capability: tuple[int, int]) -> Path:
    """Runs all five; raises what programs.build raises."""
    return build("known", (*FILES, "known_main.cpp"), capability)


def verdicts(launches: Sequence[Launch], text: str) -> list[Verdict]:
    """One for each kernel, of its first launch. `text`: what the program printed, that its results
    are right; a kernel that computes something else is not the one whose bottleneck is known."""
    found = []
    printed = text.splitlines()
    for symbol, expected in KNOWN.items():
        launch = next((x for x in launches if x.symbol.partition("(")[0] == symbol), None)
        if launch is None:
            found.append(Verdict(symbol, expected, None, "ncu did not profile it"))
            continue
        if f"{expected}: right" not in printed:
            found.append(Verdict(symbol, expected, None, "its result was not right"))
            continue
        try:
            found.append(Verdict(symbol, expected, b.explain(values_of(launch))))
        except MetricError as error:
            found.append(Verdict(symbol, expected, None, str(error)))
    return found
