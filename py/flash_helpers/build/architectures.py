"""The GPU architectures of a build: TORCH_CUDA_ARCH_LIST, the GPU present, or a default."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..compilers.errors import BuildError
from ..compilers.programs import ask, find_program
from ..kernels.family import Family

ARCH_VARIABLE = "TORCH_CUDA_ARCH_LIST"

# Where no GPU is present and none is asked for: the kernel family's base, and the H100 and H200.
# Both together fit the time budget (docs/results/build-times.md).
DEFAULT_ARCHITECTURES = "8.0;9.0a"

# The kernels use cp.async, ldmatrix and mma.m16n8k16: Ampere and newer.
MINIMUM_CAPABILITY = (8, 0)

# From compute capability 9.0 on, a GPU's own instructions (wgmma, setmaxnreg, …) exist only for the
# architecture's "a" target, which runs nowhere else.
_FIRST_WITH_SPECIFIC_TARGET = (9, 0)

# The names torch accepts, for the architectures that our kernels can run on.
_NAMED = {
    "Ampere": "8.0;8.6+PTX",
    "Ampere+Tegra": "8.7",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
    "Blackwell+Tegra": "11.0",
}


@dataclass(frozen=True, order=True)
class Architecture:
    major: int
    minor: int
    suffix: str = ""  # "a": with the instructions that only this architecture has
    ptx: bool = False  # embed PTX too, for GPUs that come later

    @property
    def number(self) -> str:
        return f"{self.major}{self.minor}{self.suffix}"

    def __str__(self) -> str:
        return f"sm_{self.number}" + ("+PTX" if self.ptx else "")

    def gencode(self, ptx_of: str | None = None) -> list[str]:
        """nvcc's flags. ptx_of: the architecture whose PTX the machine code is made from, such as
        "80"; None: its own."""
        flags = [f"-gencode=arch=compute_{ptx_of or self.number},code=sm_{self.number}"]
        if self.ptx:
            flags.append(f"-gencode=arch=compute_{self.number},code=compute_{self.number}")
        return flags


@dataclass(frozen=True)
class Selection:
    architectures: tuple[Architecture, ...]
    reason: str  # for the build's first line

    def of_family(self, family: Family) -> Selection:
        """Those that kernels of a family are compiled for. PTX of a specific target would run
        nowhere else: it is left out."""
        targets = family.TARGETS
        if targets is None:
            return self
        without_ptx = (replace(architecture, ptx=False) for architecture in self.architectures)
        return Selection(tuple(a for a in without_ptx if a.number in targets), self.reason)

    def gencode(self, family: Family) -> list[str]:
        """nvcc's flags for a family's kernels. nvcc needs twice as long for PTX as ptxas for what
        comes after it."""
        own = self.of_family(family).architectures
        # PTX of a specific target is for no other one.
        shared = family.ONE_PTX and own and not own[0].suffix
        ptx_of = own[0].number if shared else None
        return [flag for architecture in own for flag in architecture.gencode(ptx_of)]

    def names(self) -> list[str]:
        return [str(architecture) for architecture in self.architectures]


def select(supported_targets: Sequence[str], environ: Mapping[str, str] = os.environ) -> Selection:
    """The architectures of this build, each one supported by the nvcc at hand."""
    asked = environ.get(ARCH_VARIABLE, "").strip()
    if asked and asked != "native":
        return Selection(parse_arch_list(asked, supported_targets), f"{ARCH_VARIABLE}={asked}")
    present = present_gpus(environ)
    if present:
        chosen = tuple(sorted({for_gpu(capability) for capability in present}))
        for architecture in chosen:
            _check_supported(architecture, str(architecture), supported_targets)
        return Selection(chosen, "the GPU present")
    if asked == "native":
        raise BuildError(f"{ARCH_VARIABLE}=native, but nvidia-smi reports no GPU")
    default = parse_arch_list(DEFAULT_ARCHITECTURES, supported_targets)
    return Selection(default, f"default: no GPU present, {ARCH_VARIABLE} not set")


def parse_arch_list(text: str, supported_targets: Sequence[str]) -> tuple[Architecture, ...]:
    """`8.0;9.0+PTX`, `8.0 9.0a`, `Ampere, Hopper` as torch reads it; else an error."""
    words = [word for word in re.split(r"[;,\s]+", text) if word]
    if not words:
        raise BuildError(f"{ARCH_VARIABLE}={text!r} names no architecture")
    found: dict[Architecture, Architecture] = {}
    for word in words:
        for number in _NAMED.get(word, word).split(";"):
            architecture = _parse_number(number, word, supported_targets)
            key = replace(architecture, ptx=False)
            ptx = architecture.ptx or (key in found and found[key].ptx)
            found[key] = replace(key, ptx=ptx)
    return tuple(sorted(found.values()))


def _parse_number(number: str, word: str, supported_targets: Sequence[str]) -> Architecture:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])(a?)(\+PTX)?", number)
    if match is None:
        near = difflib.get_close_matches(word, [*_NAMED, *_allowed(supported_targets)], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise BuildError(
            f"{ARCH_VARIABLE}: {word!r} is not an architecture{hint}: expected one of "
            f"{', '.join(_allowed(supported_targets))}, each with or without +PTX, or "
            f"{', '.join(_NAMED)}"
        )
    architecture = Architecture(int(match[1]), int(match[2]), match[3], match[4] is not None)
    _check_supported(architecture, word, supported_targets)
    return architecture


def _check_supported(
    architecture: Architecture, word: str, supported_targets: Sequence[str]
) -> None:
    name = f"{architecture.major}.{architecture.minor}{architecture.suffix}"
    allowed = _allowed(supported_targets)
    if name in allowed:
        return
    too_old = (architecture.major, architecture.minor) < MINIMUM_CAPABILITY
    why = "the kernels need 8.0 or newer" if too_old else "this nvcc has no such target"
    raise BuildError(
        f"architecture {word!r} cannot be built ({why}): allowed are {', '.join(allowed)}"
    )


def _allowed(supported_targets: Iterable[str]) -> list[str]:
    names = []
    for target in supported_targets:
        capability = (int(target[:-1]), int(target[-1]))
        if capability < MINIMUM_CAPABILITY:
            continue
        name = f"{capability[0]}.{capability[1]}"
        names += [name, f"{name}a"] if capability >= _FIRST_WITH_SPECIFIC_TARGET else [name]
    return names


def for_gpu(capability: tuple[int, int]) -> Architecture:
    suffix = "a" if capability >= _FIRST_WITH_SPECIFIC_TARGET else ""
    return Architecture(*capability, suffix)


def present_gpus(environ: Mapping[str, str] = os.environ) -> list[tuple[int, int]]:
    """Compute capabilities of the GPUs here, as nvidia-smi reports them; empty without a driver."""
    program = find_program("nvidia-smi", environ.get("PATH"))
    if program is None:
        return []
    command = [str(program), "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        return parse_compute_capabilities(ask(command))
    except BuildError:
        return []


def parse_compute_capabilities(text: str) -> list[tuple[int, int]]:
    """GPUs too old for the kernels are left out: another one of the machine may serve."""
    found = re.findall(r"^[ \t]*([0-9]{1,2})\.([0-9])[ \t]*$", text, re.MULTILINE)
    capabilities = [(int(major), int(minor)) for major, minor in found]
    return [capability for capability in capabilities if capability >= MINIMUM_CAPABILITY]
