"""Row by row: is NEW slower than BASE, and is that sure?"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flash_helpers.kernels.problem import AttentionProblem

from .results import Measurement, usable_bursts
from .row import Row
from .runs import RowKey, Run, RunError, observations
from .significance import Shift, shift

SAME, FASTER, SLOWER, AMBIGUOUS = "same", "faster", "slower", "ambiguous"


@dataclass(frozen=True)
class Rules:
    """`false_alarms` is for the table as a whole: every row gets its share of it."""

    fail_over: float = 0.025  # a regression is at least so much slower
    same_within: float = 0.01
    false_alarms: float = 0.002
    anchored: bool = False  # measure both runs by what the references did


@dataclass(frozen=True)
class Line:
    key: RowKey
    label: str
    is_ours: bool
    base_ms: float
    new_ms: float
    shift: Shift
    verdict: str
    is_regression: bool


@dataclass
class Comparison:
    lines: list[Line]
    broken: list[Row] = field(default_factory=list)  # ok in BASE, something else in NEW
    missing: list[RowKey] = field(default_factory=list)  # measured in BASE, not tried in NEW
    n_added: int = 0

    def regressions(self) -> list[Line]:
        return [line for line in self.lines if line.is_regression]


def compare_runs(base: Run, new: Run, rules: Rules, *, any_gpu: bool = False) -> Comparison:
    """Raises RunError where the runs cannot be compared."""
    _check_comparable(base, new, any_gpu)
    common = [key for key in base.measured if key in new.measured]
    if not common:
        raise RunError(f"{base.path} and {new.path} have no kernel and problem in common")
    alpha = rules.false_alarms / len(common)
    pairs = [(key, base.measured[key], new.measured[key]) for key in common]
    shifts = {key: shift(observations(b), observations(n), alpha) for key, b, n in pairs}
    anchors = _anchors(pairs, shifts) if rules.anchored else {}
    lines = [_line(key, b, n, shifts[key], anchors, rules) for key, b, n in pairs]
    gone = [key for key in base.measured if key not in new.measured]
    return Comparison(
        lines,
        [new.failed[key] for key in gone if key in new.failed],
        [key for key in gone if key not in new.failed],
        sum(key not in base.measured for key in new.measured),
    )


def _line(
    key: RowKey, base: Measurement, new: Measurement, found: Shift,
    anchors: dict[AttentionProblem, Shift], rules: Rules,
) -> Line:  # fmt: skip
    if base.is_ours and anchors:
        if key[0] not in anchors:
            raise RunError(f"no reference was measured in both runs at {describe(key)}")
        found = found.against(anchors[key[0]])
    verdict = judge(found, rules)
    past = found.estimate > 1 + rules.fail_over
    return Line(
        key, base.label, base.is_ours, base.summary.median, new.summary.median, found, verdict,
        base.is_ours and verdict == SLOWER and past,
    )  # fmt: skip


def judge(found: Shift, rules: Rules) -> str:
    """`same` needs a narrow interval: not to see a difference is not to know there is none."""
    if 1 / (1 + rules.same_within) <= found.low and found.high <= 1 + rules.same_within:
        return SAME
    if found.low > 1:
        return SLOWER
    if found.high < 1:
        return FASTER
    return AMBIGUOUS


def _anchors(
    pairs: Sequence[tuple[RowKey, Measurement, Measurement]], shifts: dict[RowKey, Shift]
) -> dict[AttentionProblem, Shift]:
    """What the first reference did at every problem: it is the same code in both runs."""
    found: dict[AttentionProblem, Shift] = {}
    for key, base, _ in pairs:
        if not base.is_ours:
            found.setdefault(key[0], shifts[key])
    if not found:
        raise RunError("no reference was measured in both runs: --anchored has nothing to go by")
    return found


def _check_comparable(base: Run, new: Run, any_gpu: bool) -> None:
    if base.gpus != new.gpus and not any_gpu:
        shown = [", ".join(sorted(run.gpus)) for run in (base, new)]
        raise RunError(
            f"the runs are of different GPUs ({shown[0]}; {shown[1]}): --any_gpu compares them all "
            "the same"
        )
    if len(base.policies | new.policies) > 1:
        both = sorted(base.policies | new.policies)
        raise RunError(f"the runs were not timed alike: {'; '.join(both)}")


def halves(run: Run) -> tuple[Run, Run]:
    """Every other burst of each row, twice: two runs of which nothing differs."""
    parts = []
    for start in (0, 1):
        measured = {
            key: Measurement(tuple(_every_other(row, start) for row in m.rows))
            for key, m in run.measured.items()
            if len(m.bursts) >= 2 * len(m.rows)
        }
        parts.append(Run(run.path, measured, {}, run.gpus, run.policies))
    return parts[0], parts[1]


def _every_other(row: Row, start: int) -> Row:
    bursts = usable_bursts(row)[start::2]
    return replace(
        row,
        samples_ms=[ms for burst in bursts for ms in burst],
        bursts=[len(burst) for burst in bursts],
        throttled={},
    )


@dataclass(frozen=True)
class NoiseFloor:
    """How far equal things lie apart, as fractions."""

    n: int
    common: float  # the median of all shifts, with its sign: what moved them together
    median: float
    p95: float
    worst: float
    n_regressions: int


def noise_floor(lines: Sequence[Line]) -> NoiseFloor:
    sizes = sorted(abs(line.shift.estimate - 1) for line in lines)
    return NoiseFloor(
        len(lines),
        statistics.median(line.shift.estimate - 1 for line in lines),
        statistics.median(sizes),
        sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))],
        sizes[-1],
        sum(line.is_regression for line in lines),
    )


def describe(key: RowKey) -> str:
    problem, _ = key
    return f"{problem.dtype.name}, d {problem.d_head}, seq {problem.seqlen_q}"
