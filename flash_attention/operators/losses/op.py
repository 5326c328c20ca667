"""The forward kernel of cross entropy as an Op."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...triton_kit.op import Grid
from ..rows.op import VECTOR_BYTES, RowCall, RowConfig, RowOp, item_of

PART = 16_384  # columns of a row that a program takes, at least
TOGETHER = 256  # programs whose losses one of them adds up
_LINE = 16  # words, as in the kernel
_MOST_PARTS = 64
_SHORT = 1024


@dataclass(frozen=True)
class LossOp(RowOp):
    """The last tensor is the words of the kernel's head, of which there are so many as `words`
    says; programs that tell each other nothing do not look at it."""

    def config_for(self, rows: int, columns: int) -> RowConfig:
        """Rows of up to 4096 columns at once, short ones several, longer ones in a loop."""
        block = max(16, 1 << (columns - 1).bit_length())
        if block <= _SHORT:
            return RowConfig(min(32, self.together // block), block, True, 1 if block > 128 else 2)
        if columns > 12_288:
            return self.looped
        block = min(block, 4096)
        return RowConfig(1, block, columns <= block, block // 1024)

    def space(self, call: RowCall, architecture: int) -> list[RowConfig]:
        """A thread has registers for half as many elements if they take 4 bytes, or if they are
        summed up, too, and of several rows or loaded one by one."""
        configs = []
        for config in super().space(call, architecture):
            if _smooth(call) and config.ROWS > 1:
                config = replace(config, ROWS=config.ROWS // 2)
            if _smooth(call) and vector_of(call) == 1 and not config.WHOLE:
                config = replace(config, BLOCK=config.BLOCK // 2)
            if item_of(call) == 4 and config.num_warps < 16:
                config = replace(config, num_warps=2 * config.num_warps)
            configs.append(config)
        return list(dict.fromkeys(configs))

    def parts(self, config: RowConfig, call: RowCall) -> int:
        """How many programs share a row: a power of two."""
        if config.ROWS > 1 or config.WHOLE:
            return 1
        n = -(-call.columns // max(PART, 2 * config.BLOCK))
        return min(_MOST_PARTS, 1 << (n - 1).bit_length())

    def words(self, config: RowConfig, call: RowCall) -> int:
        programs = self.grid(config, call, 0)[0]
        groups = -(-programs // _each(config))
        both = _smooth(call) and self.parts(config, call) > 1
        return _LINE + (_LINE + 1) * groups + programs * (2 if both else 1)

    def grid(self, config: RowConfig, call: RowCall, processors: int) -> Grid:
        return -(-call.rows // config.ROWS) * self.parts(config, call), 1, 1

    def constants(self, config: RowConfig, call: RowCall) -> dict[str, Any]:
        threads, vector, each = 32 * config.num_warps, vector_of(call), _each(config)
        found = super().constants(config, call)
        del found["WHOLE"]  # a loop of no turns
        return found | {
            "GROUP": max(1, config.BLOCK // (threads * vector)), "VECTOR": vector,
            "PARTS": self.parts(config, call), "EACH": each, "STEP": min(each, 4 * threads),
        }  # fmt: skip

    def code(self, config: RowConfig, call: RowCall) -> tuple[RowConfig, RowCall]:
        """Of the length only how many programs share a row."""
        _, same = super().code(config, call)
        parts = self.parts(config, call)
        columns = call.align if parts == 1 else parts * max(PART, 2 * config.BLOCK)
        return config, replace(same, columns=columns, programs=0)


def vector_of(call: RowCall) -> int:
    """How many elements a thread loads at a time."""
    return min(call.align, VECTOR_BYTES // item_of(call)) if call.aligned else 1


def _each(config: RowConfig) -> int:
    """Programs of a group: a word for each thread, at least."""
    return max(TOGETHER, 32 * config.num_warps)


def _smooth(call: RowCall) -> bool:
    return bool(dict(call.switches).get("SMOOTH"))
