"""A warp-specialised matrix product: right under every schedule, and wrong without any one of its
synchronisations."""

from __future__ import annotations

from collections import Counter

import pytest

from flash_helpers.emulator import (
    KernelError,
    LaunchOptions,
    RaceError,
    compare_schedules,
    compile_kernel,
    schedules,
)

from ..mutations import Mutant
from ..together import compiled_together
from .gemm import FOLDER, Gemm, hopper_ptx
from .mutations import hopper_synchronisation

OPTIONS = LaunchOptions(workers=1, max_backward_branches=1 << 16)


@pytest.mark.parametrize(("sizes", "grid"), [((64, 64, 64), 1), ((150, 200, 304), 2)])
def test_right_under_every_schedule(sizes: tuple[int, int, int], grid: int, seed: int) -> None:
    problem = Gemm.make(*sizes, seed)
    kernel = compile_kernel(hopper_ptx("gemm.cu"), "gemm")

    def run(options: LaunchOptions) -> list[object]:
        c, report = problem.run(kernel, options, grid)
        assert problem.is_right(c)
        tiles = [-(-n // 64) for n in sizes]
        assert report.mma_instructions == 4 * 4 * tiles[0] * tiles[1] * tiles[2]
        return [c]

    compare_schedules(run, seed)


def _found_by(problem: Gemm, mutant: Mutant, seed: int) -> str:
    """The error that names the mutant's place; a wrong result is none."""
    kernel = compile_kernel(mutant.ptx, "gemm")
    for options in schedules(seed, OPTIONS):
        try:
            problem.run(kernel, options)
        except RaceError as error:
            return error.races[0].kind
        except KernelError as error:
            return type(error).__name__
    return ""


def test_every_synchronisation_is_needed(seed: int) -> None:
    ptx = hopper_ptx("gemm.cu")
    mutants = hopper_synchronisation(ptx)
    assert len(mutants) >= 20
    problem = Gemm.make(128, 128, 256, seed)
    with compiled_together(ptx, "gemm", [mutant.ptx for mutant in mutants]):
        found = {str(mutant): _found_by(problem, mutant, seed) for mutant in mutants}
    print(Counter(found.values()))
    assert [mutant for mutant, by in found.items() if not by] == []


# Bugs in the source: what is replaced, in turn, and what the report says.
_RELEASE = (
    "      if (threadIdx.x % 32 == 0) mbarrier_arrive(shared_address(&shared.empty[stage]));\n"
)
BUGS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "released before the matmuls are done": (
        [("      wgmma_wait<0>();\n" + _RELEASE, _RELEASE + "      wgmma_wait<0>();\n")],
        "write to a source of wgmma in flight",
    ),
    "staged before the last store has read": (
        [("if (threadIdx.x == 0) bulk_wait_read();\n  bar_sync(1", "bar_sync(1")],
        "write to the source of a bulk store in flight",
    ),
    "fenced by the thread that stores, not by those that write": (
        [("  fence_proxy_async();\n  bar_sync(2, kConsumers);",
          "  bar_sync(2, kConsumers);\n  fence_proxy_async();")],
        "write not fenced for an asynchronous unit",
    ),
    "read before it has landed": (
        [("      mbarrier_wait(shared_address(&shared.full[stage]), parity);\n", "")],
        "read of",
    ),
    "barriers used before they are seen": (
        [("  __syncthreads();\n", "")],
        "mbarrier",
    ),
    "one byte count for two loads": (
        [("mbarrier_expect(full, 2 * kBytes)", "mbarrier_expect(full, kBytes)")],
        "in flight",
    ),
    "more bytes announced than loaded": (
        [("mbarrier_expect(full, 2 * kBytes)", "mbarrier_expect(full, 2 * kBytes + 16)")],
        "16 bytes announced that no copy in flight brings",
    ),
    "an arrival too many": (
        [("mbarrier_expect(full, 2 * kBytes);",
          "mbarrier_expect(full, 2 * kBytes); mbarrier_arrive(full);")],
        "waits for 0 more of 1",
    ),
    "accumulators read in flight": (
        [("      wgmma_wait<0>();\n", "      wgmma_wait<0>();\n d[0] += 1; d[0] -= 1;\n"),
         ("wgmma_wait<0>", "wgmma_wait<1>")],
        "is in flight: a wgmma.wait_group is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_in_the_source(name: str, seed: int) -> None:
    replacements, report = BUGS[name]
    source = (FOLDER / "gemm.cu").read_text()
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    kernel = compile_kernel(hopper_ptx("gemm.cu", source), "gemm")
    problem = Gemm.make(128, 128, 256, seed)
    with pytest.raises(KernelError) as caught:
        for options in schedules(seed, OPTIONS):
            problem.run(kernel, options)
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    print(text)
    assert report in text
