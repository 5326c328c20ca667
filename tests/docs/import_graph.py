"""Every import of the product's Python, those inside functions, those for type checkers and those
by `importlib.import_module("...")` included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {"flash_helpers": "py", "flash_lab": "py", "flash_attention_kernels": "py"}


@dataclass(frozen=True)
class Import:
    """`user` imports `used`, both dotted names of modules, at a line."""

    user: str
    used: str
    line: int

    def __str__(self) -> str:
        return f"{self.user}:{self.line} imports {self.used}"


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, of every module of the product; tools as `tools.FOLDER.NAME`."""
    folders = [root / base / name for name, base in PACKAGES.items()]
    found = {}
    for folder in [*folders, root / "flash_attention", root / "tools"]:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(root: Path) -> list[Import]:
    """Imports between modules of the product, in the order of the files."""
    known = modules(root)
    return [found for user in known for found in imports_of(user, known[user].read_text(), known)]


def imports_of(user: str, text: str, known: dict[str, Path]) -> list[Import]:
    """Those of one module with this text, in the order of the lines."""
    package = user if known[user].name == "__init__.py" else user.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(text)):
        for name in _names(node, package):
            used = _module(name, known)
            if used and used != user:
                found.add((node.lineno, used))  # type: ignore[attr-defined]
    return [Import(user, used, line) for line, used in sorted(found)]


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """What a statement names, dotted; of `from a import b`, `a.b` may be a module or not."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and "import" in ast.unparse(node.func):
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def _module(name: str, known: dict[str, Path]) -> str:
    """The longest beginning of a dotted name that is a module of the product; "" if none is."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name
