"""The forward kernel of cross entropy as an Op."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..rows.op import RowCall, RowConfig, RowOp

_VECTOR_BYTES = 16


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
        item = 4 if call.layouts[0][1] == "float32" else 2
        of_threads = 32 * config.num_warps * _VECTOR_BYTES // item
        group = max(1, config.BLOCK // of_threads)
        return {**super().constants(config, call), "GROUP": group}
