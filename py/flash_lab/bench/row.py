"""A row of a result store: what was measured of one kernel on one problem, or why nothing was; and
the problem as a row spells it: the `shape`, which has the seed as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, get_args, get_type_hints

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from . import row_fields as kinds
from .row_fields import Kind

Json = dict[str, Any]
OK = "ok"
CEILING = "ceiling"  # a provider and kind of shape: no attention, but what bounds it (ceilings.py)

Text = Annotated[str | None, kinds.TEXT]
Count = Annotated[int | None, kinds.COUNT]
Work = Annotated[int | None, kinds.WORK]
Figure = Annotated[float | None, kinds.FIGURE]


@dataclass(frozen=True)
class Row:
    """None and empty: it does not say. `more` has what this version does not know."""

    status: Annotated[str, kinds.TEXT]
    provider: Annotated[str, kinds.TEXT]
    kernel: Annotated[str, kinds.TEXT]
    key: Annotated[str, kinds.TEXT] = ""
    symbol: Text = None
    label: Text = None
    note: Text = None
    error: Text = None
    phase: Text = None
    command: Text = None
    time: Text = None
    worker: Text = None
    environment_fingerprint: Text = None
    clock_note: Text = None
    energy_note: Text = None
    loaded_clock_note: Text = None
    tuned: Text = None
    configuration: Text = None
    group: Count = None
    memory_bytes: Count = None
    registers: Count = None
    spilled_bytes: Count = None
    shared_bytes: Count = None
    threads: Count = None
    blocks_per_sm: Count = None
    flop: Work = None  # of a ceiling, like `bytes`
    bytes: Work = None
    effective_sm_mhz: Figure = None
    loaded_sm_mhz: Figure = None
    loop_watts: Figure = None
    samples_ms: Annotated[list[float], kinds.SAMPLES] = field(default_factory=list)
    bursts: Annotated[list[int], kinds.SIZES] = field(default_factory=list)
    joules: Annotated[list[float], kinds.FIGURES] = field(default_factory=list)
    throttled: Annotated[dict[str, str], kinds.REASONS] = field(default_factory=dict)
    clocks: Annotated[dict[str, float], kinds.CLOCKS] = field(default_factory=dict)
    shape: Annotated[Json, kinds.SHAPE] = field(default_factory=dict)
    policy: Annotated[Json, kinds.POLICY] = field(default_factory=dict)
    environment: Annotated[Json, kinds.SCALARS] = field(default_factory=dict)
    parameters: Annotated[Json, kinds.SCALARS_OR_NONE] = field(default_factory=dict)
    more: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Row:
        """Raises ValueError, naming the field that cannot be."""
        if problem := problem_with(record):
            raise ValueError(problem)
        known = {name: record[name] for name in _KINDS if record.get(name) is not None}
        more = {k: v for k, v in record.items() if k not in _KINDS and k != "schema"}
        return cls(**known, more=more)

    def to_json(self) -> Json:
        """What from_json() reads, without what the row does not say."""
        said = {name: getattr(self, name) for name in _KINDS}
        return {name: value for name, value in said.items() if value not in (None, [], {})} | (
            self.more
        )

    @cached_property
    def problem(self) -> AttentionProblem:
        """Of a row of attention for which lacking() has no word."""
        return problem_of(self.shape)

    @property
    def subject(self) -> tuple[object, str]:
        """What was measured, and on what."""
        return self.dtype if self.provider == CEILING else self.problem, self.kernel

    @property
    def dtype(self) -> str:
        return str(self.shape["dtype"])

    @property
    def seed(self) -> int:
        return int(self.shape["seed"])

    @property
    def stage(self) -> str:
        """Which pass of a tuner or run of a gate it belongs to."""
        return str(self.policy.get("stage", ""))

    @property
    def identity(self) -> tuple[str, str]:
        """Of the measurement: rows with the same one are about the same thing."""
        return self.key, self.environment_fingerprint or ""

    def lacking(self) -> str:
        """What a final row lacks to be computed with, in a sentence; else an empty string."""
        is_ok, is_ceiling = self.status == OK, self.provider == CEILING
        if not self.shape:
            return "it has no shape"
        sizes = ("batch", "n_heads", "n_kv_heads", "seq_len", "d_head", "seed")
        needed = ("dtype", *(() if is_ceiling else sizes))
        missing = [name for name in needed if name not in self.shape]
        if missing:
            return f"its shape has no {missing[0]}"
        if is_ok and not self.samples_ms:
            return "it is ok, but has no samples_ms"
        if is_ok and is_ceiling and not (self.flop or self.bytes):
            return "it is of a ceiling, but has neither flop nor bytes"
        try:
            _ = is_ceiling or self.problem
        except ValueError as error:
            return f"its shape is no problem: {error}"
        return "" if is_ok or self.error is not None else "it has no error"


_KINDS: dict[str, Kind] = {
    name: kind
    for name, hint in get_type_hints(Row, include_extras=True).items()
    for kind in get_args(hint)[1:]
    if isinstance(kind, Kind)
}


def problem_with(record: Mapping[str, Any]) -> str:
    """What is wrong with a field that is there, in a sentence; else an empty string."""
    return kinds.problem_with(record, _KINDS)


def shape_of(problem: AttentionProblem, seed: int) -> Json:
    """`seqlen_k` and `d_v` stand in it only where they differ from `seq_len` and `d_head`: stores
    of older versions know one length and one head dimension."""
    shape: Json = {
        "batch": problem.batch,
        "n_heads": problem.n_heads,
        "n_kv_heads": problem.n_kv_heads,
        "seq_len": problem.seqlen_q,
        "d_head": problem.d_head,
        "dtype": problem.dtype.name,
        "seed": seed,
        "causal": problem.causal,
    }
    if problem.seqlen_k != problem.seqlen_q:
        shape["seqlen_k"] = problem.seqlen_k
    if problem.d_v != problem.d_head:
        shape["d_v"] = problem.d_v
    return shape


def problem_of(shape: Json) -> AttentionProblem:
    """Raises KeyError for a size that is missing, ValueError for sizes that make no problem."""
    return AttentionProblem(
        DType.from_string(shape["dtype"]),
        shape["batch"],
        shape["seq_len"],
        shape["seqlen_k" if "seqlen_k" in shape else "seq_len"],
        shape["n_heads"],
        shape["n_kv_heads"],
        shape["d_head"],
        shape.get("d_v", 0),
        bool(shape.get("causal")),
    )
