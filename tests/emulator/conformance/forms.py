"""Which forms of instructions, opcodes with all their modifiers, occur in PTX of the Ampere family
(those of the Hopper family: tests/emulator/sm90/test_hopper_attention.py).

    PYTHONPATH=py:. python3 -m tests.emulator.conformance.forms    # writes forms.txt anew

forms.txt holds the forms of all kernels that any selection word names, with the number of kernels
that use them: compiling all those kernels takes a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator.translator.ptx_parser import Instruction, PtxFile, Scope
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sets import known_configs

FILE = Path(__file__).with_suffix(".txt")


def _instructions(scope: Scope) -> Iterator[Instruction]:
    for statement in scope.statements:
        if isinstance(statement, Scope):
            yield from _instructions(statement)
        elif isinstance(statement, Instruction):
            yield statement


def forms_of(ptx: str) -> Counter[str]:
    """How often every form occurs in all entries."""
    file = PtxFile(ptx)
    bodies = [file.entry(name).body for name in file.module.entries]
    return Counter(".".join(ins.opcode) for body in bodies for ins in _instructions(body))


def kernels_per_form(texts: Iterable[str]) -> Counter[str]:
    return Counter(form for text in texts for form in forms_of(text))


def recorded() -> dict[str, int]:
    lines = (line.split() for line in FILE.read_text().splitlines())
    return {form: int(kernels) for form, kernels in lines}


def ampere_configs() -> list[KernelConfig]:
    """With the steps of previous_kernels/."""
    return [config for config in known_configs() if config.FAMILY == "sm80"]


def all_kernels() -> dict[str, int]:
    return dict(kernels_per_form(map(kernel_ptx, ampere_configs())))


def main() -> None:
    found = sorted(all_kernels().items())
    FILE.write_text("".join(f"{form} {kernels}\n" for form, kernels in found))
    print(f"{len(found)} forms in {len(ampere_configs())} kernels: {FILE}")


if __name__ == "__main__":
    main()
