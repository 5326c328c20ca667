"""From coarse to fine: which kernel is best, and is it surely?"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.registry import violations
from flash_helpers.kernels.variants import takes_everything

from .objective import Objective
from .results import Measurement, by_problem
from .row import Row
from .significance import p_faster
from .sweep import Case, Job, Sweep

_SURE = 0.05  # of naming a winner that is none, for all rivals of a problem together


@dataclass(frozen=True)
class Stage:
    """One pass over a problem. Its survivors go on: all within `keep` of the best, at least
    two, at most `at_most`."""

    sweep: Sweep
    keep: float
    at_most: int


@dataclass(frozen=True)
class Winner:
    """`ranked` begins with the winner; `tied` are the rivals that may be as fast."""

    case: Case
    objective: Objective
    ranked: list[Measurement]
    tied: list[str]
    others: list[str]  # from the earlier stages, for lengths that the ranked ones do not take

    @property
    def best(self) -> Measurement:
        return self.ranked[0]


def prune(case: Case, arch: str) -> Case:
    """Moves what the GPU cannot run (shared memory, architecture) to the skipped ones, and earlier
    steps: they are kept to be looked at, not to be used."""
    kept: list[Job] = []
    skipped = list(case.skipped)
    for job in case.ours:
        config = parse_kernel_name_into_config(job.kernel)
        reasons = violations(config, arch or None)
        if unused := config.kept_for_study():
            reasons.append(unused)
        if reasons:
            skipped.append((job, " ".join(reasons)))
        else:
            kept.append(job)
    return replace(case, ours=tuple(kept), skipped=tuple(skipped))


def tune_case(
    case: Case, stages: Sequence[Stage], on_row: Callable[[Row], None],
    objective: Objective,
) -> Winner | None:  # fmt: skip
    """Runs the stages; None if no kernel gives a right result. Raises ObjectiveError."""
    everyone: dict[str, Measurement] = {}
    ranked: list[Measurement] = []
    current = case
    for stage in stages:
        rows: list[Row] = []
        for row in stage.sweep.run(current):
            rows.append(row)
            on_row(row)
        ours = [m for result in by_problem(rows) for m in result.ranked if m.is_ours]
        if not ours:
            return None
        ranked = objective.ranked(ours)
        everyone |= {m.kernel: m for m in ranked}
        kernels = {m.kernel for m in survivors(ranked, stage, objective)}
        left = tuple(job for job in current.ours if job.kernel in kernels)
        current = replace(current, ours=left, skipped=())
    names = {m.kernel for m in ranked}
    others = objective.ranked([m for m in everyone.values() if m.kernel not in names])
    rest = [*best_by_blocks(others), *best_for_any_length(ranked, others)]
    return Winner(case, objective, ranked, ties(ranked, objective), list(dict.fromkeys(rest)))


def survivors(
    ranked: Sequence[Measurement], stage: Stage, objective: Objective
) -> list[Measurement]:
    limit = objective.cost(ranked[0]) * (1 + stage.keep)
    close = [m for m in ranked if objective.cost(m) <= limit]
    return list(ranked[: min(max(2, len(close)), stage.at_most)])


def ties(ranked: Sequence[Measurement], objective: Objective) -> list[str]:
    """The rivals of the first that it does not beat: one-sided Mann-Whitney tests on bursts."""
    best = objective.observations(ranked[0])
    allowed = _SURE / max(1, len(ranked) - 1)
    return [m.kernel for m in ranked[1:] if p_faster(best, objective.observations(m)) > allowed]


def best_by_blocks(ranked: Sequence[Measurement]) -> list[str]:
    """For lengths that the winner's blocks do not divide: each family's first of every block
    shape."""
    best: dict[tuple[str, tuple[int, int]], Measurement] = {}
    for m in ranked:
        config = parse_kernel_name_into_config(m.kernel)
        best.setdefault((config.FAMILY, config.blocks()), m)
    return [m.kernel for m in best.values()]


def best_for_any_length(ranked: Sequence[Measurement], others: Sequence[Measurement]) -> list[str]:
    """For lengths that no blocks divide, and the mask: each family's first kernel that takes them,
    unless it is ranked."""
    best: dict[str, str] = {}
    for m in (*ranked, *others):
        config = parse_kernel_name_into_config(m.kernel)
        if takes_everything(config):
            best.setdefault(config.FAMILY, m.kernel)
    return [kernel for kernel in best.values() if kernel not in {m.kernel for m in ranked}]


def table_entries(winners: Sequence[Winner]) -> list[dict[str, Any]]:
    """Entries of the tuning table: a measured length stands for those nearest to it, by ratio."""
    subjects: dict[tuple[object, ...], list[Winner]] = {}
    for winner in winners:
        p, gpu = winner.case.problem, winner.best.row.environment.get("gpu")
        subjects.setdefault((gpu, p.dtype, p.d_head, p.causal), []).append(winner)
    entries = []
    for found in subjects.values():
        found.sort(key=lambda winner: winner.case.problem.seqlen_q)
        lengths = [winner.case.problem.seqlen_q for winner in found]
        for winner, (low, high) in zip(found, ranges(lengths), strict=True):
            # One for each family, so that a later sweep of one keeps what the other has.
            by_family: dict[str, list[str]] = {}
            for kernel in [m.kernel for m in winner.ranked] + winner.others:
                family = parse_kernel_name_into_config(kernel).FAMILY
                by_family.setdefault(family, []).append(kernel)
            entries += [_entry(winner, kernels, low, high) for kernels in by_family.values()]
    return entries


def ranges(lengths: Sequence[int]) -> list[tuple[int, int | None]]:
    """Around ascending lengths, meeting at their geometric means."""
    middles = [math.isqrt(a * b) for a, b in itertools.pairwise(lengths)]
    return list(zip([1, *(m + 1 for m in middles)], [*middles, None], strict=True))


def costs(objective: Objective, measured: Measurement) -> dict[str, object]:
    """What was minimized, and how much energy and memory a kernel takes, as far as that was
    measured."""
    row = measured.row
    found: dict[str, object] = {"objective": str(objective)}
    if row.joules:
        found["joules"] = round(statistics.fmean(row.joules), 5)
    return found | ({"memory_bytes": row.memory_bytes} if row.memory_bytes else {})


def _numbers(winner: Winner, measured: Measurement | None) -> dict[str, Any]:
    """Of a family's best kernel, if it came as far as the last stage."""
    if measured is None:
        return {"behind": winner.best.kernel, "objective": str(winner.objective)}
    return {
        "median_ms": round(measured.summary.median, 5),
        "matmul_tflops": round(measured.matmul_tflops, 1),
        "tied_with": winner.tied if measured is winner.best else [],
        **costs(winner.objective, measured),
    }


def _entry(winner: Winner, kernels: list[str], low: int, high: int | None) -> dict[str, Any]:
    measured = next((m for m in winner.ranked if m.kernel == kernels[0]), None)
    row, problem = winner.best.row, winner.case.problem
    environment = row.environment
    kept = ("commit", "build_fingerprint", "driver", "cuda", "torch")
    return {
        "gpu": str(environment.get("gpu", "")),
        "compute_capability": str(environment.get("compute_capability", "")),
        "dtype": problem.dtype.name,
        "d_head": problem.d_head,
        "causal": problem.causal,
        "seq_min": low,
        "seq_max": high,
        "kernels": tuple(kernels),
        "evidence": {
            "measured_at": problem.seqlen_q,
            "batch": problem.batch,
            "heads": problem.n_heads,
            **_numbers(winner, measured),
            "time": row.time,
            **{name: environment[name] for name in kept if name in environment},
        },
    }
