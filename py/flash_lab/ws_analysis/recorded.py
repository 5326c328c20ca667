"""Rows that were measured: in this run, or in an earlier one."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from ..bench.providers import CEILING
from ..bench.records import OK
from ..bench.results import ProblemResult, by_problem
from ..bench.row import Json, Row
from ..bench.runs import RunError, rows_of


@dataclass(frozen=True)
class Measured:
    """All rows of the run, those of ceilings too; `environment` says where."""

    rows: list[Row]
    problems: list[ProblemResult]
    environment: Json


def recorded(options: argparse.Namespace) -> Measured | None:
    """What the store of --rows holds of its last shape, after saying so; None: it holds nothing.
    The options then say what that shape was."""
    try:
        rows, notes = rows_of(options.rows)
        attention = [row for row in rows if row.provider != CEILING]
        if not attention:
            raise RunError(f"cannot use {options.rows}: no row in it is about attention")
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    wanted = _shape(attention[-1])
    kept = [row for row in rows if row.provider == CEILING or _shape(row) == wanted]
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} rows of other shapes are left out")
    print("\n".join([f"store: {options.rows}", *(f"note: {note}" for note in notes)]))
    problems = by_problem(kept)
    options.n_ctx = [problem.seq_len for problem in problems]
    options.batch, options.heads, options.head_dim, options.causal = wanted
    policies = [row.policy for row in kept if row.status == OK and row.policy]
    options.noncu = bool(policies) and not policies[-1].get("cold_l2", True)
    return Measured(kept, problems, kept[-1].environment)


def _shape(row: Row) -> tuple[object, ...]:
    p = row.problem
    return p.batch, p.n_heads, p.d_head, p.causal
