"""Do repeated sweeps agree on the best kernel? And pt_bench's times with ncu's?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flash_helpers.base import csv_text
from flash_helpers.base.safe_read import read_regular
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.measure import Json
from flash_lab.bench.results import Measurement, by_problem
from flash_lab.bench.row import Row
from flash_lab.bench.runs import RunError

RANK_BAR_PCT = 1.0
AGREEMENT_BAR_PCT = 5.0
_FROM_NCU = ("seq_len", "duration_ns", "cycles")


def rank_verdicts(sweeps: Sequence[Sequence[Row]]) -> Iterator[Json]:
    """For every problem and pair of sweeps: how much slower is the best of the one in the other
    than what is best there. At last a summary."""
    tables = [_times(rows) for rows in sweeps]
    worst = 0.0
    n = 0
    for key in tables[0]:
        for (i, first), (j, second) in itertools.permutations(enumerate(tables), 2):
            if key not in first or key not in second:
                continue
            one, other = first[key], second[key]
            best, there = (min(times, key=lambda k: times[k]) for times in (one, other))
            if best not in other:
                continue
            loss = 100 * (other[best] / other[there] - 1)
            worst, n = max(worst, loss), n + 1
            yield {
                "check": "repeat", "kind": "pair", "sweeps": [i, j], "dtype": key.dtype.name,
                "d_head": key.d_head, "seq_len": key.seqlen_q, "best": best, "best_there": there,
                "loss_pct": round(loss, 3),
                "best_ms": [round(one[best], 5), round(other[there], 5)],
            }  # fmt: skip
    yield {
        "check": "repeat", "kind": "summary", "sweeps": len(sweeps), "pairs": n,
        "worst_loss_pct": round(worst, 3), "ok": n > 0 and worst <= RANK_BAR_PCT,
    }  # fmt: skip


def _times(rows: Sequence[Row]) -> dict[AttentionProblem, dict[str, float]]:
    found = {}
    for problem in by_problem(rows):
        ours = {m.kernel: m.summary.median for m in problem.ranked if m.is_ours}
        if ours:
            found[problem.problem] = ours
    return found


def read_ncu(path: Path) -> list[dict[str, str]]:
    """What ncu_bench.py --csv wrote of kernels that it measured. Raises RunError."""
    try:
        rows = csv_text.parse(read_regular(path).decode())
    except (OSError, ValueError) as error:
        raise RunError(f"cannot use {path}: {error}") from error
    kept = [row for row in rows if row.get("status") in ("ok", "incomplete")]
    if not kept:
        raise RunError(f"cannot use {path}: it has no kernel that ncu_bench.py measured")
    for row in kept:
        wrong = [name for name in _FROM_NCU if not _is_positive(row.get(name, ""))]
        if wrong or "symbol" not in row:
            what = f"{wrong[0]} is {row.get(wrong[0])!r:.40}" if wrong else "it has no symbol"
            raise RunError(f"cannot use {path}: {what}; expected what ncu_bench.py --csv writes")
    return kept


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def agreement_verdicts(
    rows: Sequence[Row], profiled: Sequence[Mapping[str, str]]
) -> Iterator[Json]:
    """For every kernel and length that both have: cycles of pt_bench (time × clock under load)
    against ncu's. Two clocks are not equal for two tools, but cycles do not depend on them."""
    by_ncu = {(row["symbol"], int(row["seq_len"])): row for row in profiled}
    n, n_unknown, worst = 0, 0, 0.0
    for problem in by_problem(rows):
        for m in problem.ranked:
            row = by_ncu.get((str(m.row.symbol), problem.seq_len))
            if row is None or not m.is_ours:
                continue
            line = _agreement(m, row)
            n += 1
            if line["cycles_pct"] is None:
                n_unknown += 1
            else:
                worst = max(worst, abs(line["cycles_pct"]))
            yield line
    yield {
        "check": "agreement", "kind": "summary", "kernels": n, "without_clock": n_unknown,
        "worst_cycles_pct": round(worst, 2),
        "ok": n > n_unknown == 0 and worst <= AGREEMENT_BAR_PCT,
    }  # fmt: skip


def _agreement(m: Measurement, profiled: Mapping[str, str]) -> Json:
    ms, ncu_ms = m.summary.median, float(profiled["duration_ns"]) / 1e6
    ncu_cycles = float(profiled["cycles"])
    mhz = m.row.loaded_sm_mhz
    cycles = ms * 1e3 * mhz if mhz else None
    return {
        "check": "agreement", "kind": "kernel", "kernel": m.kernel,
        "seq_len": m.problem.seqlen_q, "pt_ms": round(ms, 5), "ncu_ms": round(ncu_ms, 5),
        "time_pct": round(100 * (ms / ncu_ms - 1), 2),
        "pt_loaded_mhz": mhz, "pt_waiting_mhz": m.row.effective_sm_mhz,
        "ncu_mhz": round(ncu_cycles / ncu_ms / 1e3, 1),
        "pt_cycles": cycles and round(cycles), "ncu_cycles": round(ncu_cycles),
        "cycles_pct": None if cycles is None else round(100 * (cycles / ncu_cycles - 1), 2),
    }  # fmt: skip
