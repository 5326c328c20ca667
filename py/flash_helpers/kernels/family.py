"""`Family`: what the rest of the system asks of a family of kernels, beside its configurations.

A family is a folder with these files: `config.py` (the configuration), `names.py` (its spellings
read back), `sets.py`, `constraints.py`, `arguments.py` (what its kernels are launched with)
and `family.py`, which puts them together and says which problems it serves, and how well. In C++
it has a folder and namespace of its name, and a table of functions for its launches. registry.py
lists the families.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .contract import KernelConfig, Variant
from .problem import AttentionProblem

Capability = tuple[int, int]
Sets = Mapping[str, Callable[[], Sequence[KernelConfig]]]


@dataclass(frozen=True)
class Step:
    """One step in the history of a family's kernel: an entry of previous_kernels/steps.toml."""

    number: int
    title: str
    idea: str
    source: str  # folder of the body; "": the live kernel
    is_configuration: bool  # shares the body of the step before, and differs by options alone
    config: KernelConfig  # the kernel that the tools run
    sass: str
    problem: str
    change: str
    why: str
    fa2: dict[str, float]  # GPU -> percent of FlashAttention-2, in the predecessor
    shows: tuple[dict[str, Any], ...]


class Family(ABC):
    """Kernels of one design. Its methods take configurations of its own only."""

    NAME: ClassVar[str]  # KernelConfig.FAMILY of its configurations
    TITLE: ClassVar[str]  # in running text: "the ... family"
    # Examples of its spellings, for the message that refuses a name.
    SPELLINGS: ClassVar[str]
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]]
    # Whether its kernels are of backward passes (backward_config.py).
    GRADIENTS: ClassVar[bool] = False
    # Whether its kernels serve sequences of different lengths and caches (serve_config.py).
    SERVES: ClassVar[bool] = False
    # The targets of nvcc that its kernels can be compiled for, such as "90a"; None: every one.
    TARGETS: ClassVar[tuple[str, ...] | None] = None
    # Whether its PTX is the same for every target: then nvcc makes it once, for the oldest.
    ONE_PTX: ClassVar[bool] = False
    # What a configuration takes nvcc, about, for one architecture: units that take longest are
    # compiled first.
    COMPILE_SECONDS: ClassVar[float] = 2.0
    # Configurations that share a translation unit, at most. Measured (docs/results/build-times.md):
    # a second of a unit is nvcc's own, but while the last units compile other cores idle.
    CONFIGS_PER_UNIT: ClassVar[int] = 4
    # A folder laid out like csrc/ (include/, runtime/), for a family that lives outside of it.
    SOURCES: ClassVar[Path | None] = None

    @abstractmethod
    def parse(self, text: str) -> KernelConfig | None:
        """The configuration that a text of at most spelling.MAX_TEXT characters names, in any of
        the family's spellings; None: it does not."""

    @abstractmethod
    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        """The configuration and the variant of a kernel's symbol; None: it is not the family's."""

    @abstractmethod
    def sets(self) -> Sets:
        """What words of KERNELS select, by word."""

    @abstractmethod
    def everything(self) -> Sequence[KernelConfig]:
        """The family's part of KERNELS=all."""

    def history(self) -> Sequence[Step]:
        """The earlier steps of its kernel, in order; none by default."""
        return ()

    @abstractmethod
    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        """One sentence for each reason why the configuration cannot be built (for a compute
        capability, if one is given); empty: it can."""

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        """What the emulator launches one of the kernels with, made from the record of a call
        (forward_args.py, backward_args.py, serve_args.py)."""
        return record

    # The choice of a kernel for a problem.

    @abstractmethod
    def preference(self, capability: Capability | None) -> int:
        """How early the family is asked on a GPU of this capability, or (None) in the emulator:
        the largest first; 0: only where all others refuse."""

    @abstractmethod
    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        """Why its kernels cannot serve the problem there; None: they can, where built."""

    def candidates(self) -> Sequence[KernelConfig]:
        """What the emulator may choose from where no build is asked; by default what is built."""
        return ()

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """What a kernel is worth where nothing was measured: larger is better."""
        return config.order_key()

    def suits(self, config: KernelConfig, problem: AttentionProblem) -> bool:
        """Whether the problem should rather have this kernel than others, whatever they promise."""
        return True

    @abstractmethod
    def how_to_build(self) -> str:
        """The end of the sentence that says that this build lacks a kernel."""
