"""The files under tools/ and the installed commands (pyproject.toml, [project.scripts]): the same
functions, which run from any folder."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# It installs what the others need, and only a source tree has use for it.
OWN = ROOT / "tools/build/set_up.py"
TOOLS = sorted(path for path in (ROOT / "tools").glob("*/*.py") if path != OWN)
# Checks of the project: they stand with the tests, which are not installed.
# Run as `python -m flash_attention` too: of the library, not of the laboratory.
OF_THE_LIBRARY = {"flash-attention": "flash_attention.doctor.cli:command"}
IN_TESTS = {ROOT / "tools/benchmark/acceptance.py", ROOT / "tools/analysis/check_steps.py"}
# Runs every tool with --help in one process, each with nothing of the project imported before, and
# prints what became of it. Arguments: the source tree, then of each a name, and its file or (as an
# installed command is entered, the packages being found) MODULE:FUNCTION.
DRIVER = """
import contextlib, importlib, io, json, runpy, sys
path, tree, results = list(sys.path), sys.argv[1], {}
for name, what in zip(sys.argv[2::2], sys.argv[3::2]):
    for module in [m for m in sys.modules if m.startswith("flash_")]:
        if not module.startswith("flash_attention.torch_op"):  # a process registers it once
            del sys.modules[module]
    sys.path[:], sys.argv, out, code = path, [name, "--help"], io.StringIO(), None
    try:
        with contextlib.redirect_stdout(out):
            if ":" in what:
                sys.path[:0] = [f"{tree}/py", tree]
                module, function = what.split(":")
                code = getattr(importlib.import_module(module), function)()
            else:
                runpy.run_path(what, run_name="__main__")
    except SystemExit as end:
        code = end.code
    results[name] = [code, out.getvalue(), sys.modules["flash_helpers"].__file__]
print(json.dumps(results))
"""
Results = dict[str, tuple[int, str, str]]  # by name: exit code, output, file of flash_helpers


def command_name(tool: Path) -> str:
    name = tool.stem.replace("_", "-")
    return name if name.startswith("flash-") else f"flash-{name}"


def door_of(tool: Path) -> tuple[str, bool]:
    """The module whose `command` a file under tools/ calls, and whether the tree goes first."""
    (call,) = [
        node
        for node in ast.walk(ast.parse(tool.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and ast.literal_eval(node.func.slice) == "enter"
    ]
    return ast.literal_eval(call.args[0]), bool(call.keywords)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """In an empty folder. Editable installs do not count (-S), what else is installed does."""
    folder = tmp_path_factory.mktemp("empty")
    pairs = [(tool.name, str(tool)) for tool in TOOLS] + list(SCRIPTS.items())
    done = subprocess.run(
        [sys.executable, "-S", "-c", DRIVER, ROOT, *(word for pair in pairs for word in pair)],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(SITE)}, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    found: Results = json.loads(done.stdout)
    return found


def test_every_tool_is_an_installed_command() -> None:
    assert len(TOOLS) > 15
    installed = [tool for tool in TOOLS if tool not in IN_TESTS]
    doors = {command_name(tool): f"{door_of(tool)[0]}:command" for tool in installed}
    assert doors | OF_THE_LIBRARY == SCRIPTS


def test_every_tool_runs_from_an_empty_folder(results: Results) -> None:
    installed = (SITE / "flash_helpers").is_dir()
    for tool in TOOLS:
        code, output, origin = results[tool.name]
        assert code == 0 and output.startswith(f"usage: {tool.name}"), tool
        packages = SITE if installed and not door_of(tool)[1] else ROOT / "py"
        assert Path(origin).is_relative_to(packages)


def test_every_command_runs_from_an_empty_folder(results: Results) -> None:
    for name in SCRIPTS:
        code, output, _ = results[name]
        assert code == 0 and output.startswith("usage: "), name


def test_no_tool_looks_for_the_packages_itself() -> None:
    assert [path.name for path in TOOLS if "sys.path" in path.read_text()] == []
