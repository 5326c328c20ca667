"""What a micro-kernel is: one instruction under test on inputs from memory, its result stored.

Micro-kernels of one kind lie behind each other in one PTX entry, each in a scope of its own with an
output area of its own, because compilers take seconds to start and milliseconds to go on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


@dataclass(frozen=True)
class Case:
    """A micro-kernel's name, the form it tests, and how its results may be compared.

    `bound` is 0 for equal bits, else the difference allowed in units in the last place. With
    `any_nan` every NaN equals every other: PTX leaves the payload of arithmetic results open.
    """

    key: str
    form: str  # the opcode with all its modifiers
    text: str
    dtype: str
    count: int
    bound: float = 0.0
    any_nan: bool = False


@dataclass
class MicroKernels:
    """One PTX entry. It gets pointers to `inputs` and to `out_bytes` of 0xEE, then `arguments`."""

    entry: str
    ptx: str  # without header
    inputs: Any
    cases: list[Case]
    grid: int = 1
    block: int = 32
    arguments: list[bytes] = field(default_factory=list)
    preamble: str = ""  # PTX that cases share and whose change outdates their answers
    offsets: dict[str, int] = field(init=False)
    out_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = np.ascontiguousarray(self.inputs).view(np.uint8)
        self.offsets, self.out_bytes = layout(self.cases)

    def result(self, out: Any, case: Case) -> Any:
        """A case's part of the output buffer."""
        start = self.offsets[case.key]
        n_bytes = case.count * np.dtype(case.dtype).itemsize
        return out[start : start + n_bytes].view(case.dtype)

    def fingerprint(self, case: Case) -> str:
        """Changes with whatever the recorded answer depends on."""
        parts = (case.text.encode(), self.preamble.encode(), self.inputs.tobytes(), *self.arguments)
        state = hashlib.sha256(f"{case.dtype} {case.count} {self.grid} {self.block}".encode())
        for part in parts:
            state.update(hashlib.sha256(part).digest())
        return state.hexdigest()[:16]


def words(text: str) -> list[str]:
    return text.split()


def layout(cases: list[Case]) -> tuple[dict[str, int], int]:
    """Where every case's results begin (multiples of 16), and the end."""
    offsets, end = {}, 0
    for case in cases:
        if case.key in offsets:
            raise ValueError(f"two micro-kernels are called {case.key}")
        offsets[case.key] = end
        end += -(-case.count * np.dtype(case.dtype).itemsize // 16) * 16
    return offsets, end


def entry_text(name: str, body: str, extra_parameters: str = "") -> str:
    """An entry with %in, %out, the thread's number in the grid in %t and in the block in %tid32."""
    parameters = f".param .u64 {name}_in, .param .u64 {name}_out{extra_parameters}"
    return f""".visible .entry {name}({parameters})
{{
.reg .b64 %in, %out, %o2, %o4, %o8, %at<9>; .reg .b32 %t, %tid32, %block32, %lane;
ld.param.u64 %in, [{name}_in];
ld.param.u64 %out, [{name}_out];
cvta.to.global.u64 %in, %in;
cvta.to.global.u64 %out, %out;
mov.u32 %tid32, %tid.x; mov.u32 %lane, %laneid;
mov.u32 %block32, %ctaid.x; mov.u32 %t, %ntid.x;
mad.lo.s32 %t, %t, %block32, %tid32;
mad.wide.u32 %o2, %t, 2, %out; mad.wide.u32 %o4, %t, 4, %out; mad.wide.u32 %o8, %t, 8, %out;
{body}
ret;
}}
"""
