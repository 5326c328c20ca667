"""Does the order in which threads run change what a kernel computes?"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import EmulatorError
from .launch import LaunchOptions


class ScheduleError(EmulatorError):
    """Two orders of the threads, two results."""


def schedules(seed: int, options: LaunchOptions | None = None) -> tuple[LaunchOptions, ...]:
    """First lane first, last lane first, and a random order that also switches between accesses."""
    base = options or LaunchOptions()
    return (
        replace(base, lane_order="forward"),
        replace(base, lane_order="reverse"),
        replace(base, lane_order="random", seed=seed),
    )


def compare_schedules(
    run: Callable[[LaunchOptions], Sequence[Any]],
    seed: int,
    options: LaunchOptions | None = None,
) -> Sequence[Any]:
    """Runs once per schedule, once with bulk loads that land early, so that threads run further
    ahead of others, and once in random order with warps that meet, where some kernels hang; returns
    the outputs, which must not differ in a single bit.

    `run` launches with the options that it gets, into fresh outputs, and returns these (numpy
    arrays, or anything with tobytes()). Atomics on floating-point numbers may differ rightly.
    """
    first, *others = schedules(seed, options)
    expected = run(first)
    more = replace(first, early_loads=True), replace(others[-1], warps_meet=True)
    for schedule in (*others, *more):
        for index, (a, b) in enumerate(zip(expected, run(schedule), strict=True)):
            left, right = a.tobytes(), b.tobytes()
            if left == right:
                continue
            early = ", with early loads" if schedule.early_loads else ""
            early += ", with warps that meet" if schedule.warps_meet else ""
            byte = next(i for i in range(len(left)) if left[i] != right[i])
            raise ScheduleError(
                f"output {index} differs from byte {byte} on between {first.lane_order} and "
                f"{schedule.lane_order} order{early} (seed {seed}): the kernel depends on the "
                "schedule"
            )
    return expected
