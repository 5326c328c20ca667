"""Finds tests that cannot fail: plants bugs, one at a time, and says which tests stay green.

    PYTHONPATH=py:. python -m tests.mutation [WORD ...] [--list]

The bugs are those of tests/bugs.py; with WORDs, those whose file, name or tests contain one. All is
done in a temporary copy of the tree, never in the checkout. Exit codes: 0 every test found its bug,
1 a test stayed green, 2 usage, 3 a bug could not be planted or a test fails without one, 130
interrupted.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOUND, GREEN, UNTRIED = "found", "STAYS GREEN", "NOT TRIED"
# Of the tree's root: history, builds, the virtual environment. Anywhere: what tools keep.
_LEFT_OUT_OF_ROOT = {".git", ".venv", "build", "dist"}
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
_PASSED, _FAILED = 0, 1  # pytest's exit codes


@dataclass(frozen=True)
class Bug:
    """`text` stands once in `path`. Each of `tests` (what pytest takes) must fail with
    `replacement` in its place."""

    name: str
    path: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """Raises ValueError if there is not exactly one place for it."""
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"{self.path} has {self.text!r} {count} times, not once")
        return source.replace(self.text, self.replacement)


@dataclass(frozen=True)
class Result:
    bug: Bug
    test: str
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.outcome:11}  {self.bug.name}  ({self.test}){reason}"


def try_all(bugs: Sequence[Bug], root: Path = ROOT) -> Iterable[Result]:
    """One result for each test of each bug, as soon as it is there."""
    with tempfile.TemporaryDirectory(prefix="flash-mutation-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=functools.partial(_left_out, root), symlinks=True)
        clean: dict[str, int] = {}
        for bug in bugs:
            for test in bug.tests:
                if test not in clean:
                    clean[test] = _pytest(test, copy)
            yield from _try_one(bug, copy, clean)


def _left_out(root: Path, folder: str, names: list[str]) -> set[str]:
    of_root = _LEFT_OUT_OF_ROOT if Path(folder) == root else set()
    return of_root.intersection(names) | _LEFT_OUT(folder, names)


def _try_one(bug: Bug, copy: Path, clean: dict[str, int]) -> Iterable[Result]:
    path = copy / bug.path
    try:
        source = path.read_text()
        planted = bug.planted(source)
    except (OSError, ValueError) as error:
        yield from (Result(bug, test, UNTRIED, str(error)) for test in bug.tests)
        return
    path.write_text(planted)
    try:
        for test in bug.tests:
            if clean[test] != _PASSED:
                yield Result(bug, test, UNTRIED, f"pytest ends with {clean[test]} without the bug")
                continue
            code = _pytest(test, copy)
            outcome = {_PASSED: GREEN, _FAILED: FOUND}.get(code, UNTRIED)
            yield Result(bug, test, outcome, "" if outcome != UNTRIED else f"pytest: {code}")
    finally:
        path.write_text(source)


def _pytest(test: str, folder: Path) -> int:
    """Its exit code. No bytecode is kept: a file that changes twice within a second, and not in
    size, would be taken for the same."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "py"), str(folder)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False
    ).returncode


def report(results: Iterable[Result]) -> int:
    """Prints each result and their sum; returns the exit code."""
    outcomes = []
    for result in results:
        print(result, flush=True)
        outcomes.append(result.outcome)
    counts = {outcome: outcomes.count(outcome) for outcome in (FOUND, GREEN, UNTRIED)}
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
    return 1 if counts[GREEN] else 3 if counts[UNTRIED] or not outcomes else 0


def main(arguments: Sequence[str] | None = None) -> int:
    from .bugs import BUGS

    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a file, name or test")
    parser.add_argument("--list", action="store_true", help="print the bugs, plant none")
    options = parser.parse_args(arguments)
    chosen = [
        bug for bug in BUGS
        if not options.words
        or any(word in " ".join([bug.name, bug.path, *bug.tests]) for word in options.words)
    ]  # fmt: skip
    if not chosen:
        parser.error(f"no bug has {' or '.join(options.words)} in its file, name or tests: --list")
    if options.list:
        print("\n".join(f"{bug.name}: {bug.path} ({', '.join(bug.tests)})" for bug in chosen))
        return 0
    return report(try_all(chosen))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
