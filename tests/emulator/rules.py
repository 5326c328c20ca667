"""Deletes one rule of the emulator after another, and says for which no test fails.

    PYTHONPATH=py:. python -m tests.emulator.rules [WORD ...] [--list]

A rule is a place in csrc/emulator that reports, or a kind of race. All are made deletable in one
copy of the runtime, which is compiled once. The tests run once to see who asks for which rule; then
each rule is deleted in turn, in a process of its own, and only those run that asked for it. With
WORDs, the rules whose names contain one. Exit codes: 0 each rule is held by a test, 1 one is not,
2 usage, 3 the tests fail without deletion or cannot be run, 130 interrupted.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from flash_helpers.base.paths import csrc_dir
from flash_helpers.emulator.detector.races import KINDS
from flash_helpers.emulator.door import compile as door

HERE = Path(__file__).parent
# Micro-kernels; the tests of whole kernels would hold most of the rules as well, more slowly.
TESTS = [
    *("test_addresses.py", "test_block_order.py", "test_cp_async.py", "test_instructions.py"),
    *("test_partial_warps.py", "test_race_rules.py", "test_reports.py", "test_warp_collectives.py"),
    *("sm90/test_cluster_copies.py", "sm90/test_cluster_rules.py", "sm90/test_early_rules.py"),
    *("sm90/test_limits.py", "sm90/test_multicast_rules.py", "sm90/test_proxy_rules.py"),
    *("sm90/test_rules.py", "sm90/test_wgmma_rules.py"),
]
REPORTERS = (
    *("fail", "fail_divergent", "fail_endless_loop", "fail_misaligned", "fail_not_in_mask"),
    *("fail_window", "record_error", "report", "report_deadlock", "report_race"),
    "require_full_warp",
)
NO_RULES = ("fail(next_cluster_++", "fail(resident")  # of the launch, which takes over a report
_CALL = re.compile(rf"^(\s+(?:(?:\}} )?else )?(?:if \(.*\) )?)((?:{'|'.join(REPORTERS)})\()")
_FUNCTION = re.compile(r"^[^\s#/].*?(\w+)\([^;]*$")
UNTRIED = 3
CPU_SECONDS = 30  # for the tests of one rule: without it they may run for ever

HEADER = "#pragma once\nnamespace emulator {\nbool is_deleted(unsigned rule);\n}\n"
SOURCE = """#include <string.h>
namespace emulator {
static unsigned char asked[4096];
static unsigned deleted = ~0u;
bool is_deleted(unsigned rule) {
  __atomic_store_n(&asked[rule], 1, __ATOMIC_RELAXED);
  return rule == deleted;
}
extern "C" void emulator_delete_rule(unsigned rule) { deleted = rule; }
extern "C" void emulator_take_asked(unsigned char* into) {
  memcpy(into, asked, sizeof asked);
  memset(asked, 0, sizeof asked);
}
}  // namespace emulator
"""


@dataclass(frozen=True)
class Rule:
    number: int
    place: str  # file:line, or "kind"
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@contextmanager
def deletable() -> Iterator[list[Rule]]:
    """Makes the emulator of this process, which must not have loaded one yet, compile a copy of its
    runtime in which every rule can be deleted."""
    with tempfile.TemporaryDirectory(prefix="flash-rules-") as folder:
        target = Path(folder) / "emulator"
        shutil.copytree(csrc_dir() / "emulator", target)
        rules = list(_patch(target))
        with patch.object(door, "csrc_dir", lambda: Path(folder)):
            yield rules


def _patch(folder: Path) -> Iterator[Rule]:
    number = 0
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp")):
        lines = path.read_text().splitlines(keepends=True)
        function = ""
        for index, line in enumerate(lines):
            if (match := _FUNCTION.match(line)) and not line.startswith("}"):
                function = match[1]
            text = "".join(lines[index : index + 3])
            if not (call := _CALL.match(line)) or any(words in text for words in NO_RULES):
                continue
            if function in REPORTERS and "if (" not in call[1]:
                continue  # its callers are the places
            rest = line[call.end(1) :]
            lines[index] = f"{call[1]}if (is_deleted({number})) {{}} else {rest}"
            name = f"{path.relative_to(folder)}:{index + 1}"
            yield Rule(number, name, _words(text[call.end(1) :]))
            number += 1
        path.write_text("".join(lines))
    yield from _patch_kinds(folder, number)
    header = folder / "runtime" / "types.h"
    header.write_text(header.read_text() + '#include "deleted_rule.h"\n')
    (folder / "runtime" / "deleted_rule.h").write_text(HEADER)
    (folder / "runtime" / "deleted_rule.cpp").write_text(SOURCE)


def _patch_kinds(folder: Path, number: int) -> Iterator[Rule]:
    path = folder / "detector" / "race_table.cpp"
    start = "void RaceTable::add(const RaceReport& report) {\n"
    source = path.read_text()
    if source.count(start) != 1:
        raise ValueError(f"{path.name} has no {start!r}")
    deleted = f"  if (is_deleted({number} + u32(report.kind))) return;\n"
    path.write_text(source.replace(start, start + deleted))
    yield from (Rule(number + i, "kind of race", kind) for i, kind in enumerate(KINDS))


def _words(call: str) -> str:
    """What tells one call from another: its message, or its first line."""
    call = call.split(";\n")[0]
    return " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call)) or call.splitlines()[0]


@dataclass
class _Asked:
    """A pytest plugin: which tests ask for which rule."""

    by_rule: dict[int, list[str]] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        _take_asked()
        result = yield
        for rule in _take_asked():
            self.by_rule.setdefault(rule, []).append(item.nodeid)
        return result


def _take_asked() -> list[int]:
    asked = (ctypes.c_ubyte * 4096)()
    door.runtime().library.emulator_take_asked(asked)
    return [rule for rule, was in enumerate(asked) if was]


def _pytest(arguments: Sequence[str], plugin: object | None = None) -> int:
    """The exit code of pytest in this process, which prints nothing."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--rootdir", str(HERE.parents[1])]
        return int(pytest.main([*options, *arguments], plugins=[plugin] if plugin else []))


def _is_held(rule: Rule, tests: Sequence[str]) -> bool:
    """Whether a test fails without the rule, or dies: in a child, for it may break what it runs
    in."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.chdir(HERE.parents[1])
        door.runtime().library.emulator_delete_rule(rule.number)
        code = UNTRIED
        try:
            code = _pytest(tests)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code > 1:
        raise RuntimeError(f"pytest ends with {code} without the rule {rule}")
    return code != 0  # 1: a test failed; less than 0: a signal ended it


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.emulator.rules", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a place or message")
    parser.add_argument("--list", action="store_true", help="print the rules, delete none")
    options = parser.parse_args(arguments)
    with deletable() as rules:
        chosen = [r for r in rules if not options.words or any(w in str(r) for w in options.words)]
        if not chosen:
            parser.error(f"no rule has {' or '.join(options.words)} in its place or text: --list")
        if options.list:
            print("\n".join(map(str, chosen)))
            return 0
        try:
            return _try_all(chosen)
        except RuntimeError as error:
            print(error)
            return UNTRIED


def _try_all(rules: Sequence[Rule]) -> int:
    asked = _Asked()
    if code := _pytest([str(HERE / name) for name in TESTS], asked):
        print(f"pytest ends with {code} before any rule is deleted")
        return UNTRIED
    n_held = 0
    for rule in rules:
        tests = asked.by_rule.get(rule.number, [])
        held = bool(tests) and _is_held(rule, tests)
        n_held += held
        if not held:
            why = f"{len(tests)} tests ask for it" if tests else "no test asks for it"
            print(f"NOT HELD  {rule} ({why})", flush=True)
    print(f"rules {len(rules)} held {n_held}")
    return 0 if n_held == len(rules) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
