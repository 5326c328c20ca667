"""What collecting a test file imports: torch and its like take seconds, which every run of a single
test waits for. A file that names none of them at its top brings none of them in."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .markdown import ROOT

# By import: what a test file may name at its top to have it. The library needs torch, and so do
# helpers of the tests that run it.
SLOW: dict[str, set[str]] = {
    "torch": {
        "torch", "flash_attention", "tests.bench.emulator_backend", "tests.emulator.sources",
        "tests.tools.test_runner",
    },
    "triton": {"triton"},
    "hypothesis": {"hypothesis", "tests.properties"},
    "scipy": set(),
    "matplotlib": set(),
}  # fmt: skip
# Collects files, and prints those in whose collection a module came in that was not there.
COLLECT = """
import contextlib, io, json, pytest, sys
class Watch:
    def __init__(self): self.first = {}
    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        before = set(sys.modules)
        report = yield
        self.note(before, str(getattr(collector, "path", collector)))
        return report
    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items):
        before = set(sys.modules)
        result = yield
        self.note(before, "all, at the end")
        return result
    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self):
        before = set(sys.modules)
        result = yield
        self.note(before, "the summary")
        return result
    def note(self, before, where):
        for name in set(sys.argv[1].split(",")) & (set(sys.modules) - before):
            self.first[name] = where
watch, out = Watch(), io.StringIO()
with contextlib.redirect_stdout(out):
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[2:]]
    code = pytest.main(options, plugins=[watch])
if code: sys.exit(out.getvalue())
print(json.dumps(watch.first))
"""


def names_at_the_top(path: Path) -> set[str]:
    """Modules that a file imports when it is imported, also by pytest.importorskip, with the
    packages around them; those relative to its own folder with their full names."""
    found: set[str] = set()
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            found.add(".".join([*above, *([node.module] if node.module else [])]))
        else:
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            found.update(
                str(ast.literal_eval(call.args[0]))
                for call in calls
                if ast.unparse(call.func) == "pytest.importorskip"
            )
    names = [name.split(".") for name in found]
    return {".".join(parts[: n + 1]) for parts in names for n in range(len(parts))}


def imported_first_by(watched: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """Which of these modules collecting these files imports, and the file of each."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, ",".join(watched), *files], cwd=ROOT, timeout=900,
        env=os.environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_collecting_a_file_imports_what_it_names_at_most() -> None:
    """All files that name no slow module, in one process: had one brought it in, it is named."""
    names = {path: names_at_the_top(path) for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    plain = [path for path, found in names.items() if not found & set().union(*SLOW.values())]
    assert len(plain) > 90, "most files need none of them"
    assert imported_first_by(list(SLOW), plain) == {}


def test_an_import_at_the_top_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "test_planted.py"
    planted.write_text("import pathlib, colorsys\ndef test_it(): pass\n")
    other = tmp_path / "test_other.py"
    other.write_text("def test_it():\n    import colorsys\n")
    found = imported_first_by(["colorsys"], [other, planted])
    assert found == {"colorsys": str(planted)}
