"""Each rule of the emulator, deleted, makes a test fail (`python -m tests.emulator.rules`)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import flash_helpers.emulator
from flash_helpers.base.paths import csrc_dir
from flash_helpers.emulator.detector.races import KINDS

from .rules import REPORTERS, deletable

README = Path(flash_helpers.emulator.__file__).with_name("README.md").read_text()
# Calls of these functions within each other: who calls them from outside is listed.
WITHIN = {"door/wait_report.cpp": 1, "runtime/collective.cpp": 3, "runtime/memory.cpp": 2,
          "runtime/scheduler.cpp": 1, "sm90/async_shadow.cpp": 1}  # fmt: skip


def test_the_list_has_every_place_that_reports() -> None:
    with deletable() as rules:
        places = {rule.place for rule in rules}
    assert [rule.number for rule in rules] == list(range(len(rules)))
    assert [rule.text for rule in rules[-len(KINDS) :]] == list(KINDS)
    call = re.compile(rf"^ (?!.*\bvoid ).*\b(?:{'|'.join(REPORTERS)})\(")
    folder = csrc_dir() / "emulator"
    unlisted = Counter(
        name
        for path in sorted(folder.rglob("*.*"))
        if (name := str(path.relative_to(folder))) != "door/launch.cpp"  # takes over a report
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if call.match(line) and f"{name}:{number}" not in places
    )
    assert unlisted == WITHIN
    assert f"`rules {len(rules)} held {len(rules)}`" in README


@pytest.mark.slow
def test_each_is_held() -> None:
    """A minute and a half of one processor: a runtime of its own, and then a process a rule."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.emulator.rules"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (counts := re.fullmatch(r"rules (\d+) held (\d+)\n", done.stdout)), done.stdout
    assert counts[1] == counts[2] and int(counts[1]) > 90
