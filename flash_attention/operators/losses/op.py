"""The forward kernel of cross entropy as an Op."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..rows.op import VECTOR_BYTES, RowCall, RowConfig, RowOp, item_of


@dataclass(frozen=True)
class LossOp(RowOp):
    """GROUP: how many vectors of 16 bytes a thread has of a block."""

    def space(self, call: RowCall, architecture: int) -> list[RowConfig]:
        """A loop that sums up the logits, too, has registers for half as many."""
        each = 2 if dict(call.switches).get("SMOOTH") else 1
        return [
            config if config.WHOLE else replace(config, BLOCK=config.BLOCK // each)
            for config in super().space(call, architecture)
        ]

    def constants(self, config: RowConfig, call: RowCall) -> dict[str, Any]:
        of_threads = 32 * config.num_warps * VECTOR_BYTES // item_of(call)
        group = max(1, config.BLOCK // of_threads)
        return {**super().constants(config, call), "GROUP": group}
