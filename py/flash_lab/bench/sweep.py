"""Many problems, many kernels, one store: what is measured, in which company, and what is kept."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flash_helpers.base.timing import Policy
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.variants import launched_symbol

from ..correctness.selection import partition
from ..provenance import source_state
from .events import Event
from .providers import OURS
from .records import SKIPPED, STARTED, fingerprint, row_key
from .row import Row, shape_of
from .store import ResultStore
from .supervisor import Measurer

_RESERVED = ("event", "schema", "crc32", "time")  # which the store writes
_OF_THE_KEY = ("provider", "kernel", "shape", "policy", "environment")


@dataclass(frozen=True)
class Job:
    provider: str
    kernel: str  # a short form, or for a reference its provider again
    symbol: str = ""


class Work(Protocol):
    """What a sweep runs: a Case, or the ceilings."""

    @property
    def skipped(self) -> tuple[tuple[Job, str], ...]: ...

    def shape(self) -> Event: ...

    def groups(self, size: int) -> list[tuple[Job, ...]]: ...


@dataclass(frozen=True)
class Case:
    """Our kernels and the references on one problem, and the `seed` of its tensors."""

    problem: AttentionProblem
    seed: int
    ours: tuple[Job, ...]
    references: tuple[Job, ...]
    skipped: tuple[tuple[Job, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.problem}, seed {self.seed}"

    def shape(self) -> Event:
        return shape_of(self.problem, self.seed)

    def groups(self, size: int) -> list[tuple[Job, ...]]:
        """What runs in turns with each other: `size` of our kernels (0: all) and all references,
        so that every group has the same yardstick. A sweep that is killed loses one group."""
        size = size or max(1, len(self.ours))
        starts = range(0, len(self.ours), size)
        return [self.references + self.ours[i : i + size] for i in starts] or (
            [self.references] if self.references else []
        )


def make_case(
    problem: AttentionProblem, seed: int, configs: Sequence[KernelConfig], providers: Sequence[str]
) -> Case:
    """The kernels of the problem's dtype and head size; those that do not take its sequence or its
    mask are rows that say so."""
    fitting = [c for c in configs if (c.dtype, c.d_head) == (problem.dtype, problem.d_head)]
    ours = fitting if OURS in providers else []
    kept, skipped = partition(ours, problem.seqlen_q, causal=problem.causal)
    lengths = (problem.seqlen_q, problem.seqlen_k, problem.causal)
    return Case(
        problem,
        seed,
        tuple(our_job(config, launched_symbol(config, *lengths)) for config in kept),
        tuple(Job(name, name) for name in providers if name != OURS),
        tuple((our_job(item.config), item.reason) for item in skipped),
    )


def our_job(config: KernelConfig, symbol: str = "") -> Job:
    """`symbol`: of the kernel that is launched, where that is the general one."""
    return Job(OURS, config.short_form(), symbol or config.kernel_name())


@dataclass
class Sweep:
    """Measures cases and appends every row. `stage` keeps the passes of a tuner apart."""

    store: ResultStore
    supervisor: Measurer
    policy: Policy
    command: str
    group_size: int = 12
    stage: str = ""
    retry_failed: bool = False
    environment: Event = field(init=False)
    environment_fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        self.environment = {**source_state(), **self.supervisor.environment()}
        self.environment_fingerprint = fingerprint(self.environment)

    def run(self, case: Work) -> Iterator[Row]:
        """The final row of every job of a case; those of earlier sweeps come from the store."""
        for job, reason in case.skipped:
            identity = self._identity(case, job, 0)
            found = self._found(identity)
            yield found or self.store.append({**identity, "status": SKIPPED, "error": reason})
        for number, group in enumerate(case.groups(self.group_size)):
            yield from self._run_group(case, number, group)

    def n_rows(self, case: Work) -> int:
        return len(case.skipped) + sum(map(len, case.groups(self.group_size)))

    def _run_group(self, case: Work, number: int, group: Sequence[Job]) -> Iterator[Row]:
        identities = {job.kernel: self._identity(case, job, number) for job in group}
        found = {kernel: self._found(row) for kernel, row in identities.items()}
        missing = [job for job in group if found[job.kernel] is None]
        if any(job.provider == OURS for job in missing):  # with the references, for comparison
            missing = [job for job in group if job.provider != OURS or job in missing]
        again = {job.kernel for job in missing}
        yield from (row for kernel, row in found.items() if row is not None and kernel not in again)
        if not missing:
            return
        request = {
            "shape": case.shape(),
            "policy": dataclasses.asdict(self.policy),
            "candidates": [{"provider": job.provider, "kernel": job.kernel} for job in missing],
        }
        started: set[tuple[str, str]] = set()
        for event in self.supervisor.measure(request):
            identity = identities[event["kernel"]]
            if event["event"] == "running":
                step = (event["kernel"], event["phase"])
                if step not in started:
                    started.add(step)
                    phase = {"status": STARTED, "phase": event["phase"]}
                    self.store.append({**identity, **phase})
            else:
                said = {name: value for name, value in event.items() if name not in _RESERVED}
                yield self.store.append({**said, **identity, "status": event["status"]})

    def _found(self, identity: Event) -> Row | None:
        row = self.store.find(identity["key"], self.environment_fingerprint)
        if row is None or (self.retry_failed and row.status != "ok"):
            return None
        # Its key and fingerprint are of what is asked for: so is what they stand for, whatever else
        # the row says.
        row = dataclasses.replace(row, **{name: identity[name] for name in _OF_THE_KEY})
        return None if row.lacking() else row

    def _identity(self, case: Work, job: Job, group: int) -> Event:
        """All that is known of a row before it is measured."""
        shape = case.shape()
        policy = dataclasses.asdict(self.policy) | {"stage": self.stage}
        name = job.kernel if job.provider == OURS else f"{job.kernel}#{group}"
        return {
            "key": row_key(name, shape, policy),
            "provider": job.provider,
            "kernel": job.kernel,
            "symbol": job.symbol,
            "shape": shape,
            "policy": policy,
            "group": group,
            "environment": self.environment,
            "environment_fingerprint": self.environment_fingerprint,
            "command": self.command,
        }
