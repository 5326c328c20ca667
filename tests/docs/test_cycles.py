"""No module of the emulator imports another that needs it, and its translator knows nothing of what
counts and checks: that is handed to it as passes."""

from __future__ import annotations

from collections.abc import Iterable

from .import_graph import Import, imports
from .markdown import ROOT

EMULATOR = "flash_helpers.emulator"
TRANSLATOR = f"{EMULATOR}.translator"


def in_circles(found: Iterable[Import]) -> list[Import]:
    """Imports between modules that need each other, directly or not: what is left when modules
    that import none of the others are taken away, again and again, and those that none imports."""
    left = set(found)
    while True:
        users, used = {i.user for i in left}, {i.used for i in left}
        kept = {i for i in left if i.used in users and i.user in used}
        if kept == left:
            return sorted(left, key=str)
        left = kept


def of_the_emulator() -> list[Import]:
    return [i for i in imports(ROOT) if i.user.startswith(EMULATOR) and i.used.startswith(EMULATOR)]


def test_the_emulator_has_no_circle_of_imports() -> None:
    found = of_the_emulator()
    assert len(found) > 80, "the graph is not whole"
    assert [str(i) for i in in_circles(found)] == []


def test_the_translator_imports_no_instrumentation() -> None:
    allowed = (TRANSLATOR, f"{EMULATOR}.errors")
    outward = [i for i in of_the_emulator() if i.user.startswith(TRANSLATOR)]
    assert [str(i) for i in outward if not i.used.startswith(allowed)] == []


def test_a_circle_is_found() -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a"), ("d", "f")]
    assert {(i.user, i.used) for i in in_circles(Import(*pair, 1) for pair in pairs)} == {
        ("a", "b"), ("b", "c"), ("c", "a"),
    }  # fmt: skip
