"""Runs of tests that others wrote: fetched where there is a network, run where there is none, in
parts and for a limited time."""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "tests.others_plugin"
EXIT_FAILED, EXIT_LATE, EXIT_NO_DATA = 1, 3, 4
# Seconds after its end for the test that runs then; what takes longer is killed.
GRACE = 30.0
_ENDINGS = (0, 1, 2, 5)  # of pytest: passed, failed, stopped, nothing selected


@dataclass(frozen=True)
class Outcome:
    passed: int = 0
    refused: int = 0  # as documented
    skipped: int = 0
    failed: tuple[str, ...] = ()
    not_run: int = 0

    @property
    def anything(self) -> bool:
        return bool(self.passed or self.refused or self.failed or self.not_run)


def add_options(parser: argparse.ArgumentParser, release: str) -> None:
    parser.add_argument("--tests", type=Path, help="the file, where it is already here; packages "
                        "in its folder are found too")  # fmt: skip
    parser.add_argument("--fetch", type=Path, metavar="FOLDER",
                        help="fetches the tests and what they need, and runs nothing")  # fmt: skip
    parser.add_argument("--release", default=release, help="whose tests (default: %(default)s)")
    parser.add_argument("--part", default="1/1", metavar="I/N",
                        help="of N parts of the tests that are chosen the I-th")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="after which no further test begins")  # fmt: skip


def check_options(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    if chosen.tests is not None and not chosen.tests.is_file():
        parser.error(f"--tests {chosen.tests} is not a file")
    numbers = re.fullmatch(r"(\d+)/(\d+)", chosen.part)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
        parser.error(f"--part {chosen.part}: expected I/N with I from 1 to N, such as 2/8")
    if not chosen.seconds > 0:
        parser.error(f"--seconds {chosen.seconds}: expected more than 0")


def fetched(url: str, folder: Path, packages: Sequence[str] = ()) -> Path:
    """The file, with what it imports beside it. Raises OSError, also where pip fails."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / url.rpartition("/")[2]
    with urllib.request.urlopen(url, timeout=60) as answer:
        path.write_bytes(answer.read())
    if packages:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        if subprocess.run([*command, "--target", str(folder), *packages], check=False).returncode:
            raise OSError(f"pip could not install {', '.join(packages)}")
    return path


def run(
    tests: Path,
    selection: Sequence[str],
    *,
    plugin: str,
    folder: Path,
    part: str = "1/1",
    seconds: float = math.inf,
    places: Sequence[Path] = (),
) -> Outcome:
    """One run of pytest, in a process of its own, with a module of plugins or none. `places` are
    where modules are found beside the tests' folder; `folder` is for what is written."""
    known = filter(None, [os.environ.get("PYTHONPATH")])
    found = [str(tests.parent), *map(str, places), str(ROOT / "py"), str(ROOT), *known]
    outcomes = folder / f"{plugin or 'none'}.outcomes"
    outcomes.unlink(missing_ok=True)
    plugins = [word for name in (PLUGIN, plugin) if name for word in ("-p", name)]
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tests.parent),
        "-p", "no:cacheprovider", *plugins, f"--outcomes={outcomes}", f"--part={part}",
        f"--until={time.time() + seconds}", *selection,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    limit = None if seconds == math.inf else seconds + GRACE
    try:
        code = subprocess.run(
            command, env=environment, cwd=tests.parent, check=False, timeout=limit
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"killed {GRACE:.0f} s after its time", file=sys.stderr)
        code = 0  # what has ended stands in the file
    return outcome_of(outcomes, code)


def outcome_of(outcomes: Path, code: int) -> Outcome:
    """What the plugin wrote, and pytest's exit code."""
    lines = outcomes.read_text().splitlines() if outcomes.is_file() else []
    ended: dict[str, str] = {}
    selected = 0
    for line in lines:
        kind, _, name = line.partition(" ")
        if kind == "selected":
            selected = int(name)
        elif ended.get(name) != "failed":
            ended[name] = kind
    kinds = list(ended.values())
    failed = [name for name, kind in ended.items() if kind == "failed"]
    if code not in _ENDINGS:
        failed.append(f"pytest ended with {code}")
    not_run = max(0, selected - len(ended))
    passed, refused, skipped = map(kinds.count, ("passed", "refused", "skipped"))
    return Outcome(passed, refused, skipped, tuple(failed), not_run)
