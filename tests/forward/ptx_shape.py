"""The shape of a kernel's PTX: which kinds of instructions follow each other, and how many."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import FlashForwardKernelConfig

_INSTRUCTION = re.compile(r"^(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_:]+)*)\s.*;$")
_KINDS = {
    "cp.async.cg": "copy",
    "ld.global": "load",
    "st.shared": "store",
    "cp.async.wait": "wait",
    "bar.sync": "barrier",
    "ldmatrix": "ldmatrix",
    "mma.sync": "mma",
    "ex2": "exp",
    "mul.rn.f32": "mul_rn",
    "fma.rn.f32": "fma",
    "xor.b32": "xor",
    "max.f32": "max",
    "shfl": "shuffle",
}

Run = tuple[str, int]


@dataclass(frozen=True)
class PtxShape:
    """`kinds`: one entry per instruction that matters, in program order."""

    kinds: tuple[str, ...]

    def count(self, kind: str) -> int:
        return self.kinds.count(kind)

    def runs(self, *of: str) -> list[Run]:
        """Run lengths of the given kinds, everything else left out."""
        kept = [kind for kind in self.kinds if kind in of]
        return [(kind, len(list(group))) for kind, group in itertools.groupby(kept)]

    def scores_phase(self) -> list[Run]:
        """ldmatrix and mma of the first S = Q K^T: up to the first shuffle of the row maxima."""
        end = self.kinds.index("shuffle")
        return PtxShape(self.kinds[:end]).runs("ldmatrix", "mma")

    def between(self, first: str, last: str) -> tuple[str, ...]:
        """From the first `first` to the next `last` behind it."""
        begin = self.kinds.index(first)
        return self.kinds[begin : self.kinds.index(last, begin)]


@lru_cache(maxsize=64)
def ptx_shape(config: FlashForwardKernelConfig) -> PtxShape:
    kinds = []
    for line in kernel_ptx(config).splitlines():
        match = _INSTRUCTION.match(line.strip())
        if match:
            kinds += [kind for prefix, kind in _KINDS.items() if match[1].startswith(prefix)]
    return PtxShape(tuple(kinds))
