"""The bottleneck that `explain` names, on made-up counters: each rule, its limits, its refusals."""

from __future__ import annotations

import pytest

from flash_lab.bench.ncu_metrics import MetricError, Quantity
from flash_lab.bench.ncu_read import Launch
from flash_lab.profiling import bottleneck as b
from flash_lab.profiling import bottleneck_metrics as m

# A kernel that nothing limits much: full of warps, every unit below the limit.
QUIET = dict.fromkeys(m.PERCENTAGES, 20.0) | dict.fromkeys(m.COUNTS, 0.0) | {
    m.SM_BUSY: 97.0, m.MAX_OCCUPANCY: 100.0, m.OCCUPANCY: 90.0, m.INSTRUCTIONS: 1e6,
    m.GLOBAL_SECTORS[0]: 1e5, m.SHARED_WAVEFRONTS: 1e5,
}  # fmt: skip
SPILLS = {
    m.LOCAL_SECTORS[0]: 3e5, m.LOCAL_SECTORS[1]: 1e5, m.LOCAL_REQUESTS[0]: 2e5, m.REGISTERS: 32.0,
}  # fmt: skip
CONFLICTS = {m.LSU_DATA: 95.0, m.SHARED_DATA: 94.0, m.CONFLICTS: 9e4}
CASES = {
    b.MEMORY: {m.DRAM: 91.0, m.L2: 70.0},
    b.CACHE: {m.DRAM: 30.0, m.L2: 85.0},
    b.SHARED: {m.LSU_DATA: 90.0, m.SHARED_DATA: 85.0, m.CONFLICTS: 1e3},
    b.CONFLICTS: CONFLICTS,
    b.SPILLING: SPILLS | {m.LSU_DATA: 80.0},
    b.TENSOR: {m.TENSOR: 95.0, m.OCCUPANCY: 12.0, m.MAX_OCCUPANCY: 12.5},
    b.ISSUE: {m.ISSUE: 92.0},
    b.SMALL_GRID: {m.SM_BUSY: 9.0, m.TENSOR: 80.0, m.GRID_SIZE: 12.0},
    b.LOW_OCCUPANCY: {m.OCCUPANCY: 3.0, m.MAX_OCCUPANCY: 3.1},
    b.LATENCY: {},
}


@pytest.mark.parametrize("name", b.NAMES)
def test_every_bottleneck_is_named(name: str) -> None:
    found = b.explain(QUIET | CASES[name])
    assert found.name == name
    assert found.evidence and all("(" in line for line in found.evidence)  # each with its metric
    assert len(found.paragraph) > 100 and found.paragraph.endswith(".")
    assert str(found).startswith(f"{name}: ")


def test_the_cause_goes_before_the_unit_that_it_fills() -> None:
    assert b.explain(QUIET | SPILLS | {m.DRAM: 80.0}).name == b.SPILLING
    assert b.explain(QUIET | SPILLS | {m.TENSOR: 90.0}).name == b.TENSOR  # they cost nothing there
    assert (
        b.explain(QUIET | SPILLS).name == b.SPILLING
    )  # nothing is busy: they are what it waits for
    # Conflicts in a pipe that global loads fill are not what fills it.
    assert b.explain(QUIET | CONFLICTS | {m.SHARED_DATA: 20.0}).name == b.SHARED
    assert b.explain(QUIET | CONFLICTS | {m.DRAM: 99.0}).name == b.MEMORY
    # All that crosses device memory passes L2, which may be the busier by its own measure.
    assert b.explain(QUIET | {m.DRAM: 75.0, m.L2: 80.0}).name == b.MEMORY


@pytest.mark.parametrize(
    ("below", "at", "name"),
    [
        ({m.DRAM: 59.9}, {m.DRAM: 60.0}, b.MEMORY),
        ({m.OCCUPANCY: 25.1}, {m.OCCUPANCY: 25.0}, b.LOW_OCCUPANCY),
        (CONFLICTS | {m.CONFLICTS: 3.3e4}, CONFLICTS | {m.CONFLICTS: 3.4e4}, b.CONFLICTS),
        (SPILLS | {m.LOCAL_REQUESTS[0]: 4.9e4}, SPILLS | {m.LOCAL_REQUESTS[0]: 5e4}, b.SPILLING),
        (SPILLS | {m.GLOBAL_SECTORS[0]: 9e5}, SPILLS | {m.GLOBAL_SECTORS[0]: 7e5}, b.SPILLING),
        ({m.SM_BUSY: 60.0}, {m.SM_BUSY: 59.0}, b.SMALL_GRID),
    ],
)  # fmt: skip
def test_the_limits(below: dict[str, float], at: dict[str, float], name: str) -> None:
    assert b.explain(QUIET | below).name != name
    assert b.explain(QUIET | at).name == name


def test_a_tensor_kernel_with_few_warps_is_told_to_overlap() -> None:
    """Warp-specialised kernels have few warps on purpose."""
    few = {m.OCCUPANCY: 14.0, m.MAX_OCCUPANCY: 18.75}
    found = b.explain(QUIET | few | {m.TENSOR: 55.0})
    assert found.name == b.LATENCY and "Overlap" in found.paragraph
    assert b.explain(QUIET | few | {m.TENSOR: 29.0}).name == b.LOW_OCCUPANCY


def test_the_paragraph_says_what_limits_the_occupancy() -> None:
    limits = dict(zip(m.BLOCK_LIMITS.values(), (8.0, 1.0, 16.0, 32.0), strict=True))
    found = b.explain(QUIET | CASES[b.LOW_OCCUPANCY] | limits)
    assert "what limits it to 1 block(s) an SM is shared memory" in found.paragraph


def test_stalls_are_evidence_where_ncu_has_them() -> None:
    what, name = next(iter(m.STALLS.items()))
    assert any(what in line for line in b.explain(QUIET | {name: 7.5}).evidence)


def test_what_cannot_be_used_is_refused() -> None:
    without = {k: v for k, v in QUIET.items() if k not in (m.DRAM, m.TENSOR)}
    with pytest.raises(MetricError, match=r"dram.* is absent, and 1 more: `profiling.py"):
        b.explain(without)
    # Of shared memory more has to be known only where it is the busiest unit.
    without = {k: v for k, v in QUIET.items() if k not in m.FOR_SHARED}
    assert b.explain(without | CASES[b.TENSOR]).name == b.TENSOR
    for case in ({m.LSU_DATA: 90.0}, {m.LSU_DATA: 40.0}):
        with pytest.raises(MetricError, match=r"mem_shared.* is absent, and 2 more"):
            b.explain(without | case)
    for wrong in (float("nan"), -1.0, 1e9):
        with pytest.raises(MetricError, match=r"expected a number in 0..200"):
            b.explain(QUIET | {m.DRAM: wrong})


def test_values_of_a_launch() -> None:
    launch = Launch("kernel", {
        m.DRAM: Quantity("91.25", "%"), m.CONFLICTS: Quantity("1,234", ""),
        m.INSTRUCTIONS: Quantity("9", "inst"), m.GRID_SIZE: Quantity("n/a", ""),
        "another": Quantity("1", ""),
    })  # fmt: skip
    assert m.values_of(launch) == {m.DRAM: 91.25, m.CONFLICTS: 1234.0, m.INSTRUCTIONS: 9.0}
    cycles = {"sm__cycles_active.avg": Quantity("2,621", "cycle")}
    launch.values.update(cycles)
    assert m.SM_BUSY not in m.values_of(launch)
    launch.values.update(cycles | {"sm__cycles_elapsed.avg": Quantity("14,477", "cycle")})
    assert m.values_of(launch)[m.SM_BUSY] == pytest.approx(18.10, abs=0.01)
    launch.values[m.SM_BUSY] = Quantity("18.2", "%")
    assert m.values_of(launch)[m.SM_BUSY] == 18.2
    launch.values[m.DRAM] = Quantity("0.91", "ratio")
    with pytest.raises(MetricError, match="unit 'ratio'"):
        m.values_of(launch)
