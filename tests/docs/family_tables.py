"""The tables of kernel families in docs/support.md, made from the configurations themselves:

    PYTHONPATH=py:. python -m tests.docs.family_tables

writes them anew. A value is listed if there is a kernel with it: some configuration of the named
sets, with that one field changed, has no violations. So another family needs no line here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from typing import Any

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.family import Family
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import FAMILIES, by_preference

from .markdown import SUPPORT

NUMBERS = sorted({*range(33), *range(0, 577, 8)})
ARCHITECTURES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


@cache
def configurations(family: Family) -> tuple[KernelConfig, ...]:
    """Those of all its sets. (An earlier step has a configuration, and no fields of one.)"""
    found = {config: None for make in family.sets().values() for config in make()}
    return tuple(c for c in found if "d_head" in {field.name for field in fields(c)})


def values(family: Family, field: str) -> list[Any]:
    """Those for which there is a kernel, in their order."""
    present = getattr(configurations(family)[0], field)
    candidates: Iterable[Any] = NUMBERS
    if isinstance(present, Enum):
        candidates = type(present)
    elif isinstance(present, bool):
        candidates = (False, True)
    return [
        value
        for value in candidates
        if any(not family.violations(config) for config in changed(family, field, value))
    ]


def changed(family: Family, field: str, value: Any) -> Iterable[KernelConfig]:
    for config in configurations(family):
        try:
            yield replace(config, **{field: value})
        except ValueError:  # not a number for this field
            return


def capabilities(family: Family) -> str:
    fitting = [
        a for a in ARCHITECTURES if any(not family.violations(c, a) for c in configurations(family))
    ]
    first = ".".join(map(str, fitting[0]))
    return first if len(fitting) == 1 else f"{first} and newer"


def listed(found: Sequence[Any]) -> str:
    if all(isinstance(value, bool) for value in found):
        return ", ".join("on" if value else "off" for value in reversed(found))
    if isinstance(found[0], Enum):
        return ", ".join(value.name.lower() for value in found)
    if len(found) > 3 and list(found) == list(range(found[0], found[-1] + 1)):
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found))


def emulated(family: Family) -> list[int]:
    """The head dimensions for which it is the first that serves CPU tensors."""
    found = []
    for d_head in values(family, "d_head"):
        problem = AttentionProblem.self_attention(DType.FP16, 1, 64, 1, d_head)
        asked = by_preference(None, gradients=family.GRADIENTS, serves=family.SERVES)
        serving = [f for f in asked if f.refusal(problem, None) is None]
        if serving and serving[0] is family:
            found.append(d_head)
    return found


@cache
def families() -> str:
    lines = [
        "| family | compute capability | dtypes | head dimensions | in the emulator |",
        "| --- | --- | --- | --- | --- |",
    ]
    for family in FAMILIES:
        cells = (
            family.TITLE, capabilities(family), listed(values(family, "dtype")),
            listed(values(family, "d_head")), listed(emulated(family)),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@cache
def options() -> str:
    lines = ["| family | field | values |", "| --- | --- | --- |"]
    for family in FAMILIES:
        for field in fields(configurations(family)[0]):
            if field.name not in ("dtype", "d_head"):
                cells = (family.TITLE, f"`{field.name}`",
                         listed(values(family, field.name)))  # fmt: skip
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {"families": families, "options": options}


def filled(text: str) -> str:
    """The page with its tables as they are now."""
    for mark, make in TABLES.items():
        begin, end = (
            f"<!-- {mark}:begin (made by tests/docs/family_tables.py) -->",
            f"<!-- {mark}:end -->",
        )
        pattern = re.escape(begin) + r".*?" + re.escape(end)
        text, count = re.subn(pattern, f"{begin}\n\n{make()}\n\n{end}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {mark}")
    return text


if __name__ == "__main__":
    SUPPORT.write_text(filled(SUPPORT.read_text()))
