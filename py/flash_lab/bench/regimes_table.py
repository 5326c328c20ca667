"""The rows of regimes.py as a Markdown table, the last measurement of a shape counting."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK

from .providers import OURS
from .row_fields import is_figure, is_size

PEERS = ("cudnn", "fa4")
PROVIDERS = (OURS, *PEERS)
_REGIMES = ("burst_tflops", "sustained_tflops")
_FIGURES = (*_REGIMES, "sm_mhz", "joules_per_tflop")
_SHAPE = ("dtype", "d_head", "causal", "seq_len", "batch", "n_heads", "n_kv_heads")
_HEADER = (
    "| d, mask, keys | burst: ours / cuDNN / FA4 | ratio | sustained: ours / cuDNN / FA4 | ratio "
    "| MHz | J per TFLOP |\n| --- | --- | --- | --- | --- | --- | --- |"
)
Rows = Mapping[str, Mapping[str, Any]]  # by provider


def by_shape(lines: Iterable[str]) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    """Raises ValueError for a line that regimes.py did not write."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for line in filter(str.strip, lines):
        row = parse_json(line)
        if isinstance(row, dict) and "provider" in row:
            _check(row, line.strip()[:80])
            found.setdefault(tuple(row[name] for name in _SHAPE), {})[row["provider"]] = row
    return found


def _check(row: Mapping[str, Any], line: str) -> None:
    """Raises ValueError."""
    if missing := [name for name in _SHAPE if name not in row]:
        raise ValueError(f"a row without {missing[0]!r}: {line}")
    kinds = {"dtype": str, "causal": bool, "provider": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(row[name], kind)]
    wrong += [name for name in _SHAPE if name not in kinds and not is_size(row[name])]
    figures = {name: row[name] for name in _FIGURES if row.get(name) is not None}
    wrong += [name for name, value in figures.items() if not (is_figure(value) and value > 0)]
    wrong += [name for name in _REGIMES if name in row and row[name] is None]
    if wrong:
        raise ValueError(f"a row whose {wrong[0]} cannot be: {line}")


def ratio(rows: Rows, regime: str) -> float | None:
    """Ours over the best peer; None where one of them is missing."""
    peers = [rows[peer][regime] for peer in PEERS if regime in rows.get(peer, {})]
    if not peers or regime not in rows.get(OURS, {}):
        return None
    return float(rows[OURS][regime] / max(peers))


def _cells(rows: Rows, field: str, pattern: str) -> str:
    values = [rows.get(provider, {}).get(field) for provider in PROVIDERS]
    return " / ".join("-" if value is None else format(value, pattern) for value in values)


def table(found: Mapping[tuple[Any, ...], Rows], bar: float) -> Iterator[str]:
    """Lines of Markdown; ratios below `bar` are bold."""
    yield _HEADER
    for shape, rows in sorted(found.items()):
        named = dict(zip(_SHAPE, shape, strict=True))
        mask = "causal" if named["causal"] else "full"
        cells = [f"{named['d_head']} {mask} {named['seq_len']}"]
        for regime in _REGIMES:
            found_ratio = ratio(rows, regime)
            shown = "-" if found_ratio is None else f"{found_ratio:.3f}"
            is_low = found_ratio is not None and found_ratio < bar
            cells += [_cells(rows, regime, ".0f"), f"**{shown}**" if is_low else shown]
        cells += [_cells(rows, "sm_mhz", ".0f"), _cells(rows, "joules_per_tflop", ".2f")]
        yield f"| {' | '.join(cells)} |"


def show(paths: Iterable[Path], bar: float) -> int:
    """Prints the table of all files together, and how many ratios are below the bar. Exit codes: 0
    none is, 1 one is, 4 there are no rows. Raises ValueError and OSError."""
    texts = (read_regular(path).decode() for path in paths)
    found = by_shape(line for text in texts for line in text.splitlines())
    if not found:
        print("regimes.py: no rows")
        return EXIT_NO_DATA
    print("\n".join(table(found, bar)))
    ratios = [ratio(rows, regime) for rows in found.values() for regime in _REGIMES]
    known = [value for value in ratios if value is not None]
    low = sum(value < bar for value in known)
    missing = f", {len(ratios) - len(known)} are missing" if len(known) < len(ratios) else ""
    print(f"\n{len(known) - low} of {len(known)} ratios are at least {bar:g}{missing}")
    return EXIT_FAILED if low else EXIT_OK
