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
_WHOLE = 4096  # numbers of a program at once
_LEAST = 1024  # of several rows: half as many are a vector for each thread
_FEW = 128  # columns of a row
_MOST_ROWS = 64
_PIECE = 32  # columns of a piece, at least


@dataclass(frozen=True)
class LossOp(RowOp):
    """The last tensor is the words of the kernel's head, of which there are so many as `words`
    says; programs that tell each other nothing do not look at it."""

    def config_for(self, rows: int, columns: int) -> RowConfig:
        """Rows of up to 4096 columns at once, short ones several, longer ones in a loop."""
        block = max(16, 1 << (columns - 1).bit_length())
        if block <= _WHOLE:
            each = min(_MOST_ROWS, (self.together if block <= _FEW else _WHOLE) // block)
            while each > 1 and each * block > _LEAST and rows < each * self.programs:
                each //= 2
            return RowConfig(each, block, True, 2)
        return self.looped if columns > 12_288 else RowConfig(1, 4096, False, 4)

    def space(self, call: RowCall, architecture: int) -> list[RowConfig]:
        """A thread has registers for half as many elements if they take 4 bytes, or if they are
        summed up, too, and of several rows or loaded one by one."""
        configs = []
        for config in super().space(call, architecture):
            one_by_one = vector_of(call) == 1
            if _smooth(call) and 1 + one_by_one < config.ROWS:
                config = replace(config, ROWS=config.ROWS // 2)
            elif _smooth(call) and config.WHOLE and config.num_warps == 2:
                config = replace(config, num_warps=4)
            if _smooth(call) and one_by_one and call.columns > config.BLOCK:
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
        return super().constants(config, call) | {
            "GROUP": max(1, config.BLOCK // (threads * vector)), "VECTOR": vector,
            "PIECE": _piece(config, call), "PARTS": self.parts(config, call), "EACH": each,
            "STEP": min(each, 4 * threads),
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


def _piece(config: RowConfig, call: RowCall) -> int:
    """So many columns of a row side by side that 4 lanes or 8 have all of it, piece by piece, and
    no thread has nothing."""
    lanes = 4 if config.BLOCK <= _FEW and not dict(call.switches).get("REDUCE") else 8
    lanes = max(lanes, 32 * config.num_warps // config.ROWS)
    return min(config.BLOCK, max(_PIECE, lanes * vector_of(call), config.BLOCK // 8))


def _each(config: RowConfig) -> int:
    """Programs of a group: a word for each thread, at least."""
    return max(TOGETHER, 32 * config.num_warps)


def _smooth(call: RowCall) -> bool:
    return bool(dict(call.switches).get("SMOOTH"))
