"""How tests are written (CONTRIBUTING.md): none asserts how long something took, and none takes a
private name of the product or of another test."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .markdown import ROOT

OURS = ("flash_attention", "flash_attention_kernels", "flash_helpers", "flash_lab", "tests")
ALLOWED = ("_C", "_")  # the extension module; gettext's name
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in ALLOWED


def root_of(node: ast.AST) -> str:
    """The name that a chain of attributes, calls and subscripts begins with, or ""."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_imports(tree: ast.Module) -> tuple[list[str], set[str]]:
    """Private names that are imported from ours, and what other imports bind."""
    found: list[str] = []
    foreign: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] in OURS:
                    found += filter(is_private, parts)
                else:
                    foreign.add(alias.asname or parts[0])
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            names = [alias.name for alias in node.names]
            if node.level or parts[0] in OURS:
                found += filter(is_private, [*parts, *names])
            else:
                foreign.update(alias.asname or alias.name for alias in node.names)
    return found, foreign


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private names of ours that a test takes: imported, as an attribute, or for monkeypatch."""
    found, foreign = private_imports(tree)
    yield from found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and root_of(node) not in foreign | {"self", "cls"}:
                yield node.attr
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else root_of(node.func)
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
            if called in ("setattr", "delattr", "getattr", "hasattr"):
                names = [str(text).rpartition(".")[2] for text in texts]
                if root_of(node.args[0]) not in foreign:
                    yield from filter(is_private, names)


def reads_a_clock(node: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in CLOCKS
        and root_of(call.func) == "time"
        for call in ast.walk(node)
    )


def timed_asserts(tree: ast.Module) -> Iterator[int]:
    """Lines of asserts that compare what a clock of the wall says, or what was reckoned from it in
    the same function. The processor's own time (process_time) is not the wall's."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        timed: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                value = node.value
                if value is not None and (reads_a_clock(value) or names & timed):
                    timed |= {
                        n.id
                        for n in ast.walk(node)
                        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                    }
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                if names & timed or reads_a_clock(node.test):
                    yield node.lineno


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_no_test_takes_a_private_name() -> None:
    found = {name: left for name, tree in trees() if (left := set(private_names(tree)))}
    assert found == {}


def test_no_test_asserts_how_long_something_took() -> None:
    assert [f"{name}:{line}" for name, tree in trees() for line in timed_asserts(tree)] == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from flash_lab.bench.store import _lock", "_lock"),
        ("from ..emulator.support import _run", "_run"),
        ("import flash_attention._hidden", "_hidden"),
        ("from flash_lab.bench import store\nstore._lock()", "_lock"),
        ("def test(session): assert session.rows[0]._raw", "_raw"),
        ("def test(monkeypatch): monkeypatch.setattr(store, '_lock', None)", "_lock"),
        ("def test(monkeypatch): monkeypatch.setattr('flash_lab.bench._lock', None)", "_lock"),
    ],
)
def test_a_planted_private_name_is_found(code: str, name: str) -> None:
    assert list(private_names(ast.parse(code))) == [name]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(1)",
        "class Fake:\n    def go(self): return self._rows",
        "from flash_attention import _C\n_C.launch()",
        "def test(monkeypatch): monkeypatch.setattr(torch.cuda, 'sleep', None)",
    ],
)
def test_what_is_not_private_is_let_through(code: str) -> None:
    assert list(private_names(ast.parse(code))) == []


@pytest.mark.parametrize(
    ("code", "n_found"),
    [
        ("began = time.monotonic(); run(); assert time.monotonic() - began < 60", 1),
        ("began = time.time(); took = time.time() - began; assert took < 5, 'slow'", 1),
        ("began = time.perf_counter(); print(began); assert run() < 60", 0),
        ("began = time.process_time(); assert time.process_time() - began < 60", 0),
    ],
)
def test_a_planted_clock_is_found(code: str, n_found: int) -> None:
    tree = ast.parse(f"def test():\n    {code}\n")
    assert len(list(timed_asserts(tree))) == n_found
