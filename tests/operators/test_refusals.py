"""docs/support.md's table of what the operators refuse."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from tests.docs.markdown import SUPPORT, code_words, table

ROWS = table(SUPPORT, "operators")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_refused(row: list[str]) -> None:
    call, message = code_words(row[0])[0], row[2].strip("`")
    module, _, name = code_words(row[1])[0].rpartition(".")
    expected = getattr(importlib.import_module(module or "builtins"), name)
    known: dict[str, Any] = {name: getattr(operators, name) for name in operators.__all__}
    with pytest.raises(expected) as caught:
        eval(call, {"torch": torch, "x": torch.zeros(4, 8), **known})
    assert message in str(caught.value)


def test_the_table_names_every_operator() -> None:
    text = " ".join(row[0] for row in ROWS)
    missing = {name for name in operators.__all__ if f"{name}(" not in text}
    assert missing <= {"silu", "log_softmax"}  # as gelu and softmax
