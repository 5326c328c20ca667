"""A plugin of pytest: runs one of several parts, until a time, and writes each outcome when it is
there, so that a run that is cut off has said what it found."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

REFUSED = "refused: "  # begins the reason of an expected failure that docs/support.md has


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1")
    parser.addoption("--until", type=float, default=float("inf"), help="as time.time()")
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes(config))


class Outcomes:
    def __init__(self, config: pytest.Config) -> None:
        self.until: float = config.getoption("--until")
        number, _, count = config.getoption("--part").partition("/")
        self.number, self.count = int(number), int(count)
        self.file = config.getoption("--outcomes").open("a", buffering=1)

    def say(self, kind: str, name: str) -> None:
        self.file.write(f"{kind} {name.partition('::')[2] or name}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Every part has tests of each kind."""
        mine = items[self.number - 1 :: self.count]
        left_out = [item for i, item in enumerate(items) if i % self.count != self.number - 1]
        config.hook.pytest_deselected(items=left_out)
        items[:] = mine
        self.say("selected", str(len(mine)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid)
        elif report.skipped:
            refused = str(getattr(report, "wasxfail", "")).startswith(REFUSED)
            self.say("refused" if refused else "skipped", report.nodeid)
        elif report.when == "call":
            self.say("passed", report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        found = yield
        if time.time() >= self.until:
            item.session.shouldstop = "the time is over"
        return found
