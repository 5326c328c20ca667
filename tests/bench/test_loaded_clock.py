"""The clock under load, from what a thread beside the kernel counts."""

from __future__ import annotations

import pytest

from flash_helpers.bench.loaded_clock import clock_between


def test_the_idle_part_is_taken_off() -> None:
    """0.1 ms at 1950 MHz before the kernel, then 0.25 ms at 1780."""
    cycles = 195_000 + 445_000
    assert clock_between(cycles, 1950, 0.02, 0.12, 0.37) == pytest.approx(1780)


@pytest.mark.parametrize(
    ("cycles", "begun", "kernel", "ended"),
    [(100_000, 0.0, 0.1, 0.2), (500_000, 0.0, 0.2, 0.2), (9_000_000, 0.0, 0.1, 0.2)],
    ids=["ended before the kernel began", "no time left", "faster than any GPU"],
)
def test_what_makes_no_sense_is_not_known(
    cycles: float, begun: float, kernel: float, ended: float
) -> None:
    assert clock_between(cycles, 1950, begun, kernel, ended) is None
