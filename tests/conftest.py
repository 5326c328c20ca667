"""Skips what needs a CUDA device where there is none, and gives every test fresh, printed seeds."""

from __future__ import annotations

import contextlib
import signal

import pytest

from flash_helpers.kernels.problem import fresh_seed

# An example that takes long on a busy machine is no failure: what is counted is what it finds.
with contextlib.suppress(ImportError):  # a GPU machine may have pytest alone
    from hypothesis import HealthCheck, settings

    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

# A shell's background jobs, and what they start, ignore SIGINT: tests that interrupt a tool would
# wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch sees none")
    for item in marked:
        item.add_marker(skip)


@pytest.fixture
def seed() -> int:
    """A new seed for every test; printed, so that a failure can be repeated."""
    value = fresh_seed()
    print(f"seed {value}")
    return value
