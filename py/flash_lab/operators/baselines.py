"""Is an operator slower than it was? Its times stand in a store as those of the attention kernels
do (bench/store.py), and the same test says whether two of them differ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..bench.comparison import SLOWER, Rules, judge
from ..bench.records import OK, fingerprint, row_key
from ..bench.row import Row
from ..bench.significance import shift
from ..bench.store import open_store, read_store

PROVIDER = "operators"
THRESHOLD = 0.1
_FALSE_ALARMS = 0.002  # of one operator's comparison
_BURST = 2  # samples that benchmark_kernels takes at a time
_POLICY = {"cold_l2": False}


class Verdict(NamedTuple):
    """`ok`: it is known not to be slower by more than the threshold."""

    ok: bool
    message: str


class PerformanceRegressionTester:
    """Compares times with the last ones that were kept for the same name on a GPU of the same
    model. `environment` (provenance.provenance()) is kept with them. Nothing is kept unless
    `update_baseline` is called. Raises StoreError for a file that is no store."""

    def __init__(
        self, baseline_db_path: Path, environment: Mapping[str, Any], threshold: float = THRESHOLD
    ) -> None:
        self.path, self.environment, self.threshold = baseline_db_path, environment, threshold
        self.baselines: dict[str, Row] = {}
        self.notes: list[str] = []
        if baseline_db_path.exists():
            contents = read_store(baseline_db_path)
            self.notes = contents.left_out()
            self.baselines = {r.kernel: r for r in contents.finished() if self._counts(r)}

    def check_regression(self, name: str, samples_ms: Sequence[float]) -> Verdict:
        """Slower means: surely, and by more than the threshold. A name without a baseline is not
        ok. Raises ValueError without samples."""
        if (known := self.baselines.get(name)) is None:
            return Verdict(False, "no baseline on such a GPU")
        before, now = _bursts(known.samples_ms), _bursts(samples_ms)
        found = shift(before, now, _FALSE_ALARMS)
        word = judge(found, Rules())
        slower = word == SLOWER and found.estimate > 1 + self.threshold
        message = (
            f"{'REGRESSION' if slower else word}: {100 * (found.estimate - 1):+.1f} % "
            f"({100 * (found.low - 1):+.1f} to {100 * (found.high - 1):+.1f})"
        )
        return Verdict(not slower, message)

    def update_baseline(self, samples_ms: Mapping[str, Sequence[float]]) -> None:
        """Keeps the times of these names; older ones stay in the file. Raises StoreError."""
        about: dict[str, Any] = {
            "status": OK, "provider": PROVIDER, "policy": _POLICY,
            "environment": dict(self.environment),
            "environment_fingerprint": fingerprint(self.environment),
        }  # fmt: skip
        with open_store(self.path, resume=True) as store:
            for name, taken in samples_ms.items():
                row = {"kernel": name, "key": row_key(name, {}, _POLICY), "samples_ms": list(taken)}
                self.baselines[name] = store.append(about | row)

    def _counts(self, row: Row) -> bool:
        is_ours = row.provider == PROVIDER and row.status == OK and bool(row.samples_ms)
        return is_ours and row.environment.get("gpu") == self.environment.get("gpu")


def _bursts(samples: Sequence[float]) -> list[float]:
    """The mean of each burst: samples within one are not independent."""
    return [statistics.fmean(samples[i : i + _BURST]) for i in range(0, len(samples), _BURST)]
