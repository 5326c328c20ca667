"""PyTorch's own tests of scaled_dot_product_attention, with these kernels enabled.

    python -m tests.torch_op.pytorch_sdpa                          fetches the tests, and runs them
    python -m tests.torch_op.pytorch_sdpa --tests FILE -k flash

The file is test/test_transformers.py of the release that is installed; it needs the package
expecttest. A test that fails is run once more with PyTorch's own kernels: what fails there too is
none of ours. What is left must be in LISTED. Without a GPU it is the tests for CPUs, in the
emulator.

Exit codes: 0 all pass or are listed, 1 another fails, 2 usage, 4 the tests cannot be had, or none
was selected.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
URL = "https://raw.githubusercontent.com/pytorch/pytorch/v{}/test/test_transformers.py"
ON_GPU = "cuda and (flash or fused or sdp) and not mem_efficient and not cudnn"
ON_CPU = "cpu and (flash or fused or sdp)"
EXIT_FAILED, EXIT_NO_DATA = 1, 4
ENABLED = "tests.torch_op.enabled_plugin"

# Of failures that are meant: a pattern of the test's name, and the refusal in docs/support.md.
LISTED: Mapping[str, str] = {}


@dataclass(frozen=True)
class Outcome:
    passed: int
    skipped: int
    failed: tuple[str, ...]


def fetched(folder: Path) -> Path:
    """The tests of the release of PyTorch that is installed. Raises OSError."""
    url = URL.format(torch.__version__.partition("+")[0])
    path = folder / "test_transformers.py"
    with urllib.request.urlopen(url, timeout=60) as answer:
        path.write_bytes(answer.read())
    return path


def run(tests: Path, selection: Sequence[str], *, plugin: str, results: Path) -> Outcome:
    """One run of pytest, in a process of its own, with a module of plugins or none."""
    plugins = ("-p", plugin) if plugin else ()
    known = filter(None, [os.environ.get("PYTHONPATH")])
    places = [str(tests.parent), str(ROOT / "py"), str(ROOT), *known]
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tests.parent),
        "-p", "no:cacheprovider", *plugins, f"--junitxml={results}", *selection,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    subprocess.run(command, env=environment, cwd=tests.parent, check=False)
    return outcome_of(results, tests.stem)


def outcome_of(results: Path, module: str) -> Outcome:
    """What a file of pytest's results says of a module; nothing ran where there is none."""
    passed, skipped, failed = 0, 0, []
    cases = ElementTree.parse(results).iter("testcase") if results.is_file() else ()
    for case in cases:
        if case.find("skipped") is not None:
            skipped += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            of_class = case.get("classname", "").removeprefix(module).lstrip(".")
            failed.append("::".join(filter(None, (of_class, case.get("name")))))
        else:
            passed += 1
    return Outcome(passed, skipped, tuple(failed))


def reason_for(name: str) -> str:
    """The listed refusal; empty: there is none."""
    return next((reason for pattern, reason in LISTED.items() if re.search(pattern, name)), "")


def check(tests: Path, expression: str, folder: Path) -> int:
    """Runs, prints a table, and returns the exit code."""
    chosen = [str(tests), "-k", expression]
    ours = run(tests, chosen, plugin=ENABLED, results=folder / "ours.xml")
    if not ours.passed and not ours.failed:
        print("no test ran: see pytest's words above, or select others with -k", file=sys.stderr)
        return EXIT_NO_DATA
    theirs: tuple[str, ...] = ()
    if ours.failed:
        again = [f"{tests}::{name}" for name in ours.failed]
        theirs = run(tests, again, plugin="", results=folder / "theirs.xml").failed
    unlisted = 0
    for name in ours.failed:
        reason = "fails with PyTorch's own, too" if name in theirs else reason_for(name)
        unlisted += not reason
        print(f"{name}: {reason or 'NOT LISTED'}")
    print(
        f"{ours.passed} passed, {ours.skipped} skipped, {len(ours.failed)} failed: "
        f"{len(theirs)} with PyTorch's own, too, and {unlisted} are not listed"
    )
    return EXIT_FAILED if unlisted else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", type=Path, help="the file, where it is already here")
    on_gpu = torch.cuda.is_available()
    parser.add_argument("-k", default=ON_GPU if on_gpu else ON_CPU, help="as pytest's")
    chosen = parser.parse_args(arguments)
    if chosen.tests is not None and not chosen.tests.is_file():
        parser.error(f"--tests {chosen.tests} is not a file")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            tests = chosen.tests.resolve() if chosen.tests else fetched(folder)
        except (OSError, urllib.error.URLError) as error:
            print(f"the tests cannot be fetched: {error}; give --tests FILE", file=sys.stderr)
            return EXIT_NO_DATA
        return check(tests, chosen.k, folder)


if __name__ == "__main__":
    sys.exit(main())
