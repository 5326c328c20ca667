"""Device functions are readable, and what they hand to each other cannot be mixed up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import flash_attention

pytest.importorskip("triton")

from triton.language import constexpr

from flash_attention.triton_kit.aggregates import aggregate

MOST_PARAMETERS = 10


def device_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Those with @gluon.jit or @triton.jit. A kernel has arguments in its decorator; what is passed
    at a launch cannot be an aggregate."""
    for path in sorted(Path(flash_attention.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(item, ast.Attribute) and item.attr == "jit"
                for item in node.decorator_list
            ):
                yield f"{path.parent.name}/{path.name}:{node.name}", node


def test_no_device_function_has_more_than_ten_parameters() -> None:
    found = {name: len(node.args.args) for name, node in device_functions()}
    assert len(found) > 25
    assert {name: n for name, n in found.items() if n > MOST_PARAMETERS} == {}


def test_an_aggregate_takes_its_fields_by_name() -> None:
    fields = {"rows": constexpr, "columns": constexpr}
    Pair = aggregate(type("Pair", (), {"__annotations__": fields}))
    pair = Pair(rows=constexpr(2), columns=constexpr(3))
    assert (pair.rows.value, pair.columns.value) == (2, 3)
    with pytest.raises(TypeError, match=r"Pair has the fields \['columns', 'rows'\], not \['rows'"):
        Pair(rows=constexpr(2))
    with pytest.raises(TypeError):
        Pair(constexpr(2), constexpr(3))
