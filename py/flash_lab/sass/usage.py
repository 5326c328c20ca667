"""Registers and memory of kernels as `cuobjdump -res-usage` prints them: pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCHITECTURE = re.compile(r"^arch = (sm_\w+)$")
_FUNCTION = re.compile(r"^\s*Function (\S+):$")
_VALUES = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


@dataclass(frozen=True)
class Usage:
    """Per thread, but `shared_bytes`, which is static and per block. A stack in a kernel that calls
    nothing is what it spills."""

    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    local_bytes: int


def parse_usage(text: str) -> list[Usage]:
    """Every kernel of the text. ValueError if one lacks its figures."""
    found: list[Usage] = []
    architecture, name = "", ""
    for line in text.splitlines():
        if match := _ARCHITECTURE.match(line):
            architecture, name = match[1], ""
        elif match := _FUNCTION.match(line):
            name = match[1]
        elif name and "REG:" in line:
            values = {key: int(value) for key, value in _VALUES.findall(line)}
            missing = {"REG", "STACK", "SHARED", "LOCAL"} - set(values)
            if missing:
                raise ValueError(f"no {', '.join(sorted(missing))} for {name}: {line.strip()}")
            found.append(
                Usage(
                    name, architecture, values["REG"], values["STACK"], values["SHARED"],
                    values["LOCAL"],
                )
            )  # fmt: skip
            name = ""
    return found
