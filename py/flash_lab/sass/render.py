"""Tables of counts as text, CSV and JSON, and a little colour."""

import json
from collections.abc import Mapping, Sequence

from flash_helpers.base import csv_text
from flash_helpers.base.text_table import text_table

Cell = str | int | float
Row = Mapping[str, Cell]
FORMATS = ("table", "csv", "json")

_RED, _GREEN, _CYAN, _OFF = "\033[31m", "\033[32m", "\033[36m", "\033[0m"


def render(rows: Sequence[Row], form: str, columns: Sequence[str] | None = None) -> str:
    """`rows` with the same keys, in one of FORMATS; ends with a line break."""
    names = list(columns or (rows[0] if rows else ()))
    if form == "json":
        return json.dumps([{name: row[name] for name in names} for row in rows], indent=1) + "\n"
    if form == "csv":
        return csv_text.render(rows, names)
    if form != "table":
        raise ValueError(f"{form!r} is not a format: expected one of {', '.join(FORMATS)}")
    words = [name for name in names if any(isinstance(row[name], str) for row in rows)]
    cells = [[f"{x:.3g}" if isinstance(x := row[n], float) else x for n in names] for row in rows]
    return f"{text_table(names, cells, words)}\n"


def signed(difference: int) -> str:
    return f"{difference:+d}" if difference else "0"


def coloured_diff(lines: Sequence[str], colour: bool) -> str:
    """A unified diff: what went away red, what is new green."""
    marks = {"-": _RED, "+": _GREEN, "@": _CYAN}
    if not colour:
        return "".join(f"{line}\n" for line in lines)
    return "".join(
        f"{marks[line[0]]}{line}{_OFF}\n" if line[:1] in marks else f"{line}\n" for line in lines
    )


def painted(text: str, good: bool, colour: bool) -> str:
    return f"{_GREEN if good else _RED}{text}{_OFF}" if colour else text
