"""One step in the history of a family's kernel."""

from dataclasses import dataclass
from typing import Any

from .contract import KernelConfig


@dataclass(frozen=True)
class Step:
    """One entry of previous_kernels/steps.toml."""

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
