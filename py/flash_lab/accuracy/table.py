"""The rows of accuracy.py as a Markdown table, and whether ours keeps the bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flash_helpers.base.safe_read import parse_json

from ..bench.distributions import DISTRIBUTIONS
from ..bench.providers import OURS

CUDNN = "cudnn"
WORST_TO_CUDNN = 1.1
MEAN_TO_CUDNN = 1.04
_FIGURES = ("worst", "quantile", "mean")


@dataclass(frozen=True)
class Pooled:
    """All cases of a distribution, dtype and provider together."""

    rows: int
    worst: float
    quantile: float  # the largest of the cases
    mean: float


Found = Mapping[tuple[str, str], Mapping[str, Pooled]]  # (distribution, dtype) -> provider


def read_rows(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Raises ValueError for a line that accuracy.py did not write."""
    rows = []
    for line in filter(str.strip, lines):
        row = parse_json(line)
        if not isinstance(row, dict) or "provider" not in row:
            continue  # where the rows come from
        if "error" in row:
            continue
        if row.get("distribution") not in DISTRIBUTIONS:
            raise ValueError(f"a row of no known distribution: {line.strip()[:80]}")
        if not all(isinstance(row.get(name), float) for name in _FIGURES):
            raise ValueError(f"a row without its figures: {line.strip()[:80]}")
        rows.append(row)
    return rows


def pool(rows: Iterable[Mapping[str, Any]]) -> Found:
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        of_kind = groups.setdefault((row["distribution"], row["dtype"]), {})
        of_kind.setdefault(row["provider"], []).append(row)
    return {
        key: {provider: _pooled(cases) for provider, cases in providers.items()}
        for key, providers in groups.items()
    }


def _pooled(cases: Sequence[Mapping[str, Any]]) -> Pooled:
    count = sum(case["rows"] for case in cases)
    return Pooled(
        count,
        max(case["worst"] for case in cases),
        max(case["quantile"] for case in cases),
        sum(case["mean"] * case["rows"] for case in cases) / count,
    )


def table(found: Found, providers: Sequence[str]) -> Iterator[str]:
    """Lines of Markdown: worst, 99.9 % quantile and mean of each provider."""
    yield f"| inputs | {' | '.join(providers)} | rows |"
    yield f"| --- |{' --- |' * (len(providers) + 1)}"
    for name in DISTRIBUTIONS:
        for dtype in ("FP16", "BF16"):
            of_kind = found.get((name, dtype), {})
            if not of_kind:
                continue
            cells = [_cell(of_kind.get(provider)) for provider in providers]
            count = max(pooled.rows for pooled in of_kind.values())
            yield f"| {name}, {dtype.lower()} | {' | '.join(cells)} | {count} |"


def _cell(pooled: Pooled | None) -> str:
    if pooled is None:
        return "-"
    return f"{pooled.worst:.2f} / {pooled.quantile:.2f} / {pooled.mean:.3f}"


def misses(found: Found) -> Iterator[str]:
    """What ours misses: the bars of the distribution, and those relative to cuDNN."""
    for (name, dtype), providers in found.items():
        if OURS not in providers:
            continue
        ours, bars = providers[OURS], DISTRIBUTIONS[name]
        limits = [("worst", ours.worst, bars.worst), ("mean", ours.mean, bars.mean)]
        if CUDNN in providers:
            cudnn = providers[CUDNN]
            limits += [
                ("worst, to cuDNN's", ours.worst / cudnn.worst, WORST_TO_CUDNN),
                ("mean, to cuDNN's", ours.mean / cudnn.mean, MEAN_TO_CUDNN),
            ]
        for what, value, limit in limits:
            if not value <= limit:
                yield f"{name} {dtype}: {what} {value:.3f}, allowed {limit:g}"
