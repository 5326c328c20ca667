"""Reads what `ptxas -v` says about kernels. Pure functions over text."""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(sm_\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SECONDS = re.compile(r"Compile time = ([\d.]+) ms")
_CENTISECONDS = re.compile(r"^compile-centiseconds (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel needs on one architecture."""

    kernel: str
    architecture: str  # "sm_80"
    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    ptxas_seconds: float

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


def parse_ptxas(text: str) -> list[KernelUsage]:
    """Every kernel of a log, in its order. A kernel of which the log does not say everything is an
    error: a guess would hide spills."""
    heads = list(_ENTRY.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        _parse_kernel(head[1], head[2], text[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    ]


def _parse_kernel(kernel: str, architecture: str, text: str) -> KernelUsage:
    own = text[text.find(f"Function properties for {kernel}\n") :]
    stack, registers = _STACK.search(own), _REGISTERS.search(own)
    if stack is None or registers is None:
        missing = "spills" if stack is None else "registers"
        raise ValueError(f"the ptxas log names {kernel} for {architecture}, but not its {missing}")
    # Device functions that were not inlined follow with spills of their own: they count too.
    spills = [(int(found[2]), int(found[3])) for found in _STACK.finditer(text)]
    line = own[registers.start() :].split("\n", 1)[0]
    seconds = _SECONDS.search(own)
    return KernelUsage(
        kernel=kernel,
        architecture=architecture,
        registers=int(registers[1]),
        static_shared_bytes=_number(_SHARED, line),
        stack_bytes=int(stack[1]),
        spill_store_bytes=sum(stores for stores, _ in spills),
        spill_load_bytes=sum(loads for _, loads in spills),
        barriers=_number(_BARRIERS, line),  # older ptxas leave out what is 0
        ptxas_seconds=float(seconds[1]) / 1000 if seconds else 0.0,
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0


def parse_compile_seconds(text: str) -> float:
    """Wall time of the whole unit, as record_compile.sh noted it."""
    match = _CENTISECONDS.search(text)
    if match is None:
        raise ValueError("the compile log does not begin with its compile time")
    return int(match[1]) / 100
