"""Which kinds of race a micro-kernel must show: exactly one, or none."""

from __future__ import annotations

from collections.abc import Callable

from flash_helpers.emulator import LaunchOptions, LaunchReport, schedules

RAW, WAR, WAW = "read-after-write", "write-after-read", "write-after-write"
UNWRITTEN = "read of bytes never written"
# () for none. One kind: under every order of the threads. Two: with the first thread first, with
# the last one first; it is one race, whose name depends on which access came first.
Kinds = tuple[str, ...]
EITHER = (RAW, WAR)  # of the first thread's write and a later one's read


def check_kinds(launch: Callable[[LaunchOptions], LaunchReport], kinds: Kinds) -> None:
    """Runs under every schedule. A second kind is a failure too: it would hide that the first is no
    longer found."""
    forward, reverse, random = schedules(seed=3, options=LaunchOptions(races="report"))
    for options, allowed in ((forward, kinds[:1]), (reverse, kinds[-1:]), (random, kinds)):
        report = launch(options)
        found = {race.kind for race in report.races}
        expected = [{kind} for kind in allowed] or [set()]
        where = f"{options.lane_order} order: {sorted(found)}, expected one of {expected}"
        assert found in expected, "\n".join([where, *map(str, report.races)])
        assert report.racing_accesses >= len(report.races)
