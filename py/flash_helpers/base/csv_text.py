"""CSV as every tool writes it. A spreadsheet takes a cell that begins with `=`, `+`, `-`, `@`, a
tab or a line break for a formula, and runs it: such text gets an apostrophe in front (OWASP, "CSV
injection"), which our readers take away again. Numbers stay as they are, negative ones too."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-](?:inf|nan)", re.A)


def harmless(cell: object) -> object:
    """The cell, or a text that no spreadsheet takes for a formula."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def original(cell: str) -> str:
    """What harmless() was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def render(
    rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, header: bool = True
) -> str:
    """A line for each row, and one for the columns. What a row does not have is empty; what it has
    beside the columns is left out."""
    lines = [_line(columns)] if header else []
    lines += [_line([row.get(name, "") for name in columns]) for row in rows]
    return "".join(lines)


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    # csv quotes a carriage return in a cell only where the line's end has one.
    csv.writer(text, lineterminator="\r\n").writerow(map(harmless, cells))
    return text.getvalue().removesuffix("\r\n") + "\n"


def parse(text: str) -> list[dict[str, str]]:
    """The rows that render() wrote. Raises ValueError for any other text: a line with more
    or fewer cells than there are columns, a cell beyond the reader's limit."""
    columns, *rows = cells(text) or [[]]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise ValueError(f"row {number} has {len(row)} cells instead of {len(columns)}")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def cells(text: str) -> list[list[str]]:
    """Every row that is not empty, whatever its length. Raises ValueError."""
    try:
        found = [[original(cell) for cell in row] for row in csv.reader(io.StringIO(text))]
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None
    return [row for row in found if row]
