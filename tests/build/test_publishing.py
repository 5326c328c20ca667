"""What a build puts in place is its own, whoever builds in the same directory meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.build import driver
from flash_helpers.build.driver import InParts, build_plan
from flash_helpers.build.lock import build_lock
from flash_helpers.build.parallelism import Jobs
from flash_helpers.kernel_configs import get_kernel_configs

from .conftest import ROOT, Tree, copy_sources
from .remembering import Toolchain
from .stand_ins import make_toolchain, quick_tree

REPORT = ROOT / "tools" / "build" / "build_report.py"
# Runs in the first build: when it first reads the library that it has linked, a second build is
# started in the same directory and goes on until it ends or waits. That one may not publish.
INTERFERE = """
import os, subprocess, sys, time
def first(event, arguments, started=[]):
    if event == "open" and "/build/" in str(arguments[0]) and str(arguments[0]).endswith(".so"):
        if not started:
            started.append(True)
            environ = {**os.environ, "KERNELS": os.environ["OTHER"], "ROLE": "second"}
            command, said = [sys.executable, "-m", "flash_helpers.build"], os.environ["SAID"]
            with open(said, "w") as file:
                other = subprocess.Popen(command, env=environ, stderr=file)
            while other.poll() is None and "waiting for process" not in open(said).read():
                time.sleep(0.01)
def second(event, arguments):
    if event == "os.rename" and "/flash_attention/_C" in str(arguments[1]):
        raise OSError(1, "the second build does not publish")
if "ROLE" in os.environ:
    sys.addaudithook({"first": first, "second": second}[os.environ["ROLE"]])
"""
FRONT_ENDS = (["-m", "flash_helpers.build"], ["setup.py", "build_ext", "--inplace"])


@pytest.fixture(scope="module")
def toolchain(needs_compilers: None) -> Toolchain:
    return make_toolchain()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, compilers: Toolchain) -> Tree:
    return copy_sources(tmp_path_factory.mktemp("shared") / "tree", compilers)


def names(word: str) -> set[bytes]:
    """As they end in the library: a name may begin another."""
    return {config.kernel_name().encode() + b"\0" for config in get_kernel_configs(word)}


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=["module", "setup.py"])
def test_another_build_does_not_change_what_this_one_publishes(
    shared: Tree, toolchain: Toolchain, tmp_path: Path, front_end: list[str]
) -> None:
    mine, other = "prog", "64,64"
    (tmp_path / "sitecustomize.py").write_text(INTERFERE)
    environ = shared.environ({"KERNELS": mine, "OTHER": other, **toolchain.environ()})
    environ |= {"PYTHONPATH": f"{tmp_path}:{shared.root / 'py'}", "ROLE": "first"}
    said = tmp_path / "said"
    done = subprocess.run(  # until both have ended: they have one standard output
        [sys.executable, *front_end], cwd=shared.root, env={**environ, "SAID": str(said)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not publish" in said.read_text()
    published = shared.extension.read_bytes()
    assert all(name in published for name in names(mine))
    assert not any(name in published for name in names(other) - names(mine))


def test_parts_outlive_their_build(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked for them may still measure with one when somebody else builds there."""
    monkeypatch.setattr(driver, "CONFIGS_PER_UNIT", 4)  # two units
    tree = quick_tree(tmp_path / "tree", toolchain, n_kernels=7)
    asked = tmp_path / "asked"
    asked.mkdir()
    plan = replace(tree.plan, jobs=Jobs(1, "a test"))
    build_plan(plan, InParts(2, asked / "parts.json"), [tmp_path / "package"])
    items = json.loads((asked / "parts.json").read_text())
    libraries = [Path(item["library"]) for item in items]
    before = [path.read_bytes() for path in libraries]
    assert len(items) == 2 and sum(len(item["kernels"]) for item in items) == 7
    tree.build()
    assert [path.read_bytes() for path in libraries] == before


def test_the_report_waits_for_a_build(tmp_path: Path, toolchain: Toolchain) -> None:
    """While one runs, the logs are of two builds, or missing."""
    tree = quick_tree(tmp_path / "tree", toolchain)
    tree.build()
    command = [sys.executable, str(REPORT), "--build-dir", str(tree.directory), "--csv", "-"]
    with build_lock(tree.directory / "lock"):
        logs = {path: path.read_bytes() for path in tree.directory.rglob("generated/*.log")}
        for path in logs:
            path.unlink()
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert tool.stderr is not None
        assert f"waiting for process {os.getpid()}" in tool.stderr.readline()
        for path, data in logs.items():
            path.write_bytes(data)
    said, _ = tool.communicate()
    assert tool.returncode == 0 and said.count("\n") == 1 + len(tree.plan.configs)


def test_a_published_library_that_was_damaged(tmp_path: Path, toolchain: Toolchain) -> None:
    tree = quick_tree(tmp_path / "tree", toolchain)
    tree.build()
    before = tree.library.read_bytes()
    for data in (b"", before[:1000], b"x" * len(before)):
        tree.library.write_bytes(data)
        tree.build()
        assert tree.library.read_bytes() == before


def test_one_build_for_several_folders(tmp_path: Path, toolchain: Toolchain) -> None:
    tree = quick_tree(tmp_path / "tree", toolchain)
    result = build_plan(tree.plan, None, [tmp_path / "one", tmp_path / "two"])
    assert [path.parent.name for path in result.published] == ["one", "two"]
    first, second = (path.read_bytes() for path in result.published)
    assert first == second == (tree.directory / tree.plan.extension_name).read_bytes()
    assert {row.usage.kernel for row in result.rows} == {c.kernel_name() for c in tree.plan.configs}
