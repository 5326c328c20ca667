"""Skips what needs a CUDA device where there is none, gives every test fresh, printed seeds, and
says what each folder of tests costs."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import defaultdict

import pytest

from flash_helpers.kernels.problem import fresh_seed

# A shell's background jobs, and what they start, ignore SIGINT: tests that interrupt a tool would
# wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests' tensors are small, and every worker has a core of its own: torch's threads would spend
# more than half of the time waiting for one another. Where there is a GPU, one process runs all.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


# Of all workers together, setting up and tearing down included.
folder_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder, _, _ = report.nodeid.removeprefix("tests/").partition("/")
    folder_seconds[folder] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    costliest = sorted(folder_seconds.items(), key=lambda item: -item[1])
    costs = [f"{name} {n:.0f}" for name, n in costliest if n >= 1]
    if costs:
        terminalreporter.section("seconds of each folder's tests")
        terminalreporter.line(", ".join(costs))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Here and not at the collection, which would wait for torch."""
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch sees none")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """hypothesis's plugin imports hypothesis, a second, to say that no test has used it."""
    manager = session.config.pluginmanager
    # With xdist it is the workers that import it; what they say comes in their reports.
    if "hypothesis" not in sys.modules and not manager.has_plugin("dsession"):
        manager.unregister(name="hypothesispytest")


@pytest.fixture
def seed() -> int:
    """A new seed for every test; printed, so that a failure can be repeated."""
    value = fresh_seed()
    print(f"seed {value}")
    return value
