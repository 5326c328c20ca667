"""What the device can do at all, by the timer of the kernels: a matmul and a copy, the two
ceilings of a roofline. They are rows of the store like any other, of the provider `ceiling`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from flash_helpers.base.dtypes import DType
from flash_helpers.base.lazy import torch

from .providers import CEILING
from .records import OK
from .results import usable_bursts
from .row import Json, Row
from .sweep import Job, Sweep

# Of several sizes the fastest counts: which one that is depends on the library and the power limit.
_MATMUL_SIDES = (4096, 8192)
_COPIED_MIB = (256, 1024)  # far more than any L2 cache
MATMUL, COPY = "matmul", "copy"


@dataclass(frozen=True)
class CeilingCase:
    """What a sweep runs for one dtype: takes the place of a sweep.Case."""

    dtype: DType
    seed: int
    skipped: tuple[tuple[Job, str], ...] = ()

    def shape(self) -> Json:
        return {"dtype": self.dtype.name, "seed": self.seed, "kind": CEILING}

    def groups(self, size: int) -> list[tuple[Job, ...]]:
        names = [f"{MATMUL} {side}" for side in _MATMUL_SIDES]
        names += [f"{COPY} {mib} MiB" for mib in _COPIED_MIB]
        return [tuple(Job(CEILING, name) for name in names)]


def is_ceiling(shape: Json) -> bool:
    return shape.get("kind") == CEILING


@dataclass
class CeilingCandidate:
    """A measure.Candidate. `work`: what one call does, by the row's name for it."""

    run: Callable[[], object]
    check: Callable[[], str]
    work: Json

    def __call__(self) -> object:
        return self.run()

    def describe(self) -> Json:
        return self.work

    def captured(self) -> Callable[[], object]:
        return self.run


def make_candidate(kernel: str, shape: Json, device: str) -> CeilingCandidate:
    """Raises ValueError for a name that is none of CeilingCase's."""
    kind, _, size = kernel.partition(" ")
    if kind == MATMUL:
        return _matmul(int(size), DType.from_string(shape["dtype"]), int(shape["seed"]), device)
    if kind == COPY:
        return _copy(int(size.removesuffix(" MiB")), int(shape["seed"]), device)
    raise ValueError(f"ceiling {kernel!r} is not known: expected `{MATMUL} N` or `{COPY} N MiB`")


def _matmul(side: int, dtype: DType, seed: int, device: str) -> CeilingCandidate:
    """Normally distributed, as Q, K and V are: the bits decide the power, and so the clock."""
    generator = torch.Generator(device=device).manual_seed(seed)
    a, b = (
        torch.randn(side, side, generator=generator, device=device, dtype=dtype.to_torch_dtype())
        for _ in range(2)
    )
    out = torch.empty_like(a)
    some = slice(side // 2, side // 2 + 16)

    def verify() -> str:
        out.fill_(float("nan"))
        torch.matmul(a, b, out=out)
        # An element is a sum of `side` products, with a standard deviation of sqrt(side).
        error = float((out[some].float() - a[some].float() @ b.float()).abs().max())
        bound = 0.05 * side**0.5
        is_right = error <= bound and bool(out.isfinite().all())
        return "" if is_right else f"the matmul is off by {error:.3g}, more than {bound:.3g}"

    work = {"flop": 2 * side**3}
    return CeilingCandidate(lambda: torch.matmul(a, b, out=out), verify, work)


def _copy(mib: int, seed: int, device: str) -> CeilingCandidate:
    generator = torch.Generator(device=device).manual_seed(seed)
    source: torch.Tensor = torch.randint(
        -(2**31), 2**31 - 1, (mib << 18,), generator=generator, device=device, dtype=torch.int32
    )
    target = torch.empty_like(source)

    def verify() -> str:
        target.zero_()
        target.copy_(source)
        return "" if bool(torch.equal(source, target)) else "the copy differs from its source"

    # Read once and written once.
    return CeilingCandidate(lambda: target.copy_(source), verify, {"bytes": 2 * (mib << 20)})


@dataclass(frozen=True)
class Ceilings:
    """`peaks`: (what, TFLOP/s), `bandwidths`: (what, TB/s); the first of each is the highest."""

    peaks: tuple[tuple[str, float], ...]
    bandwidths: tuple[tuple[str, float], ...]
    origin: str  # "measured" or "data sheet"

    @property
    def peak(self) -> float:
        return self.peaks[0][1]

    @property
    def bandwidth(self) -> float:
        return self.bandwidths[0][1]

    def peak_of(self, dtype: str) -> float | None:
        """TFLOP/s of the matmul in this dtype."""
        return next((value for name, value in self.peaks if name.startswith(dtype)), None)


def measured_ceilings(rows: Iterable[Row]) -> Ceilings | None:
    """From a run's rows; None if a matmul or a copy is missing among them."""
    peaks: dict[str, tuple[str, float]] = {}
    copies: list[tuple[str, float]] = []
    for row in rows:
        if row.provider != CEILING or row.status != OK:
            continue
        ms = statistics.median(ms for burst in usable_bursts(row) for ms in burst)
        if row.flop:
            found = (f"{row.dtype} {row.kernel}", row.flop / ms / 1e9)
            peaks[row.dtype] = max(peaks.get(row.dtype, found), found, key=itemgetter(1))
        else:
            copies.append((row.kernel, (row.bytes or 0) / ms / 1e9))
    if not peaks or not copies:
        return None
    ordered = sorted(peaks.values(), key=itemgetter(1), reverse=True)
    return Ceilings(tuple(ordered), (max(copies, key=itemgetter(1)),), "measured")


def measure_ceilings(sweep: Sweep, dtypes: Sequence[DType], seed: int) -> list[Row]:
    """Measures, says what came out, and returns all rows."""
    rows = [row for dtype in dtypes for row in sweep.run(CeilingCase(dtype, seed))]
    found = measured_ceilings(rows)
    if found is not None:
        parts = [f"{name} {value:.0f} TFLOP/s" for name, value in found.peaks]
        parts += [f"{name} {value:.2f} TB/s" for name, value in found.bandwidths]
        print(f"ceilings: {', '.join(parts)}", flush=True)
    for row in rows:
        if row.status != OK:
            print(f"{row.status}: ceiling {row.kernel} ({row.dtype}): {row.error}")
    return rows
