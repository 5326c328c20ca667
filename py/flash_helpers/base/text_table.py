"""Tables for terminals."""

from collections.abc import Iterable, Sequence

from prettytable import PrettyTable


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[str] = ("kernel",)
) -> str:
    """The columns in `words` to the left, figures to the right."""
    table = PrettyTable(list(columns), align="r")
    for name in words:
        table.align[name] = "l"
    table.add_rows([list(row) for row in rows])
    return str(table.get_string())
