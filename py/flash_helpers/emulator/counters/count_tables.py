"""Tables of counts: of one launch, and of two side by side."""

from collections.abc import Iterable, Sequence

from ...base.text_table import text_table
from .counts import Counts, Totals

_MEMORY = ("wavefronts", "ideal", "x", "sectors", "ideal ", "x ")


def class_table(counts: Counts) -> str:
    """Executions and traffic by opcode class, those that occurred, and the sum."""
    rows = [(name, t) for name, t in counts.by_class().items() if t != Totals()]
    return text_table(
        ["class", "executed", *_MEMORY],
        [[name, f"{t.executions:,}", *_memory(t)] for name, t in [*rows, ("sum", counts.total)]],
        ["class"],
    )


def access_table(counts: Counts) -> str:
    """The accesses to shared and global memory by source line and opcode."""
    rows = [
        [source or "(no source line)", opcode, f"{t.executions:,}", *_memory(t)]
        for (source, opcode), t in counts.by_source().items()
        if _is_access(t)
    ]
    words = ["source", "instruction"]
    return text_table([*words, "executed", *_MEMORY], rows, words)


def comparison_table(before: Counts, after: Counts) -> str:
    """By opcode class, both and the difference; `=` where they agree."""
    a, b = before.by_class(), after.by_class()
    rows = [((name,), a[name], b[name]) for name in a if (a[name], b[name]) != (Totals(), Totals())]
    return _comparison(["class"], [*rows, (("sum",), before.total, after.total)])


def access_comparison_table(before: Counts, after: Counts) -> str:
    """By source line and opcode, only accesses that differ."""
    a, b = ({k: t for k, t in c.by_source().items() if _is_access(t)} for c in (before, after))
    rows = [(key, a.get(key, Totals()), b.get(key, Totals())) for key in dict.fromkeys([*a, *b])]
    return _comparison(["source", "instruction"], [row for row in rows if row[1] != row[2]])


def _comparison(
    header: Sequence[str], pairs: Iterable[tuple[tuple[str, ...], Totals, Totals]]
) -> str:
    rows = []
    for key, a, b in pairs:
        row = list(key)
        for name in ("executions", "wavefronts", "sectors"):
            old, new = getattr(a, name), getattr(b, name)
            row += [f"{old:,}", f"{new:,}", f"{new - old:+,}" if new != old else "="]
        rows.append(row)
    columns = [
        f"{name}{suffix}"
        for name in ("executed", "wavefronts", "sectors")
        for suffix in (" A", " B", " diff")
    ]
    return text_table([*header, *columns], rows, header)


def _is_access(totals: Totals) -> bool:
    return bool(totals.wavefronts or totals.sectors)


def _memory(totals: Totals) -> list[str]:
    return [
        *_ratio(totals.wavefronts, totals.ideal_wavefronts),
        *_ratio(totals.sectors, totals.ideal_sectors),
    ]


def _ratio(actual: int, ideal: int) -> list[str]:
    if not ideal:
        return ["", "", ""]
    return [f"{actual:,}", f"{ideal:,}", f"{actual / ideal:.2f}"]
