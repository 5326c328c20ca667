"""The tables of families in docs/support.md are what the configurations say."""

from __future__ import annotations

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.registry import FAMILIES, by_preference, family_of

from . import family_tables
from .markdown import SUPPORT, table


def test_the_tables_are_as_made() -> None:
    text = SUPPORT.read_text()
    assert text == family_tables.filled(text), "run: python -m tests.docs.family_tables"


@pytest.mark.parametrize(
    ("before", "after"), [("96, 128", "96, 160"), ("9.0 |", "9.0 and newer |")]
)
def test_a_wrong_table_is_found(before: str, after: str) -> None:
    text = SUPPORT.read_text()
    head, mark, rest = text.partition("families:begin")
    assert before in rest
    wrong = head + mark + rest.replace(before, after, 1)
    assert family_tables.filled(wrong) == text != wrong


def test_every_family_and_every_built_head_dimension_is_listed() -> None:
    rows = {row[0]: row for row in table(SUPPORT, "families")}
    assert set(rows) == {family.TITLE for family in FAMILIES}
    for config in get_kernel_configs("all"):
        row = rows[family_of(config).TITLE]
        assert str(config.d_head) in row[3].split(", ")
        assert str(config.dtype) in row[2] or config.dtype.name.lower() in row[2]


def test_the_order_of_the_families() -> None:
    """As the page says it."""
    assert "On a GPU of compute capability 9.0 the Hopper family is asked first." in (
        " ".join(SUPPORT.read_text().split())
    )
    assert by_preference((9, 0))[0].TITLE == "Hopper"
    assert {by_preference(other)[0].TITLE for other in ((8, 0), (8, 9), (10, 0))} == {"Ampere"}
