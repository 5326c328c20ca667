"""The machine code of all sixteen steps."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE, kernel_ptx
from flash_helpers.kernels.family import Step
from flash_helpers.kernels.history import load_steps

from .listing import Listing
from .sources import compiled

_PTX_OPCODE = re.compile(r"^(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_:]+)*)\s.*;$")


@dataclass(frozen=True)
class Program:
    """One step's kernel in the forms that its claims and the page look at."""

    listing: Listing
    registers: int
    ptx: str

    def opcodes(self) -> list[str]:
        """PTX opcodes in program order."""
        lines = (line.strip() for line in self.ptx.splitlines())
        return [match[1] for line in lines if (match := _PTX_OPCODE.match(line))]


def program_of(step: Step, architecture: str = DEFAULT_ARCHITECTURE) -> Program:
    """Compiles what the cache does not have."""
    code = compiled([step.config], architecture)
    (listing,) = code.select([step.config.kernel_name()])
    usage = code.usage[listing.name, listing.architecture]
    return Program(listing, usage.registers, kernel_ptx(step.config))


def programs(architecture: str = DEFAULT_ARCHITECTURE, jobs: int = 2) -> list[Program]:
    """Of all steps in order; compilers run side by side."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return list(pool.map(lambda step: program_of(step, architecture), load_steps()))
