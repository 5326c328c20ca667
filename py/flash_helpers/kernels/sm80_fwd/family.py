"""The Ampere family: cp.async, ldmatrix and mma.sync; with the earlier steps of its kernel."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets, Step
from ..problem import AttentionProblem
from ..sm80_target import refusal
from . import sets
from .config import GENERAL_SUFFIX, FlashForwardKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .coverage import get_covering_kernel_configs
from .names import SPELLINGS, parse_demangled, parse_short_form, parse_symbol
from .steps import (
    PreviousKernelConfig,
    body_violations,
    get_previous_kernel_configs,
    load_steps,
    parse_step_short_form,
    parse_step_symbol,
)

_PARSERS = (
    parse_symbol, parse_short_form, parse_demangled, parse_step_symbol, parse_step_short_form,
)  # fmt: skip


class Sm80Forward(Family):
    NAME: ClassVar[str] = FlashForwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere"
    SPELLINGS: ClassVar[str] = SPELLINGS
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    ONE_PTX: ClassVar[bool] = True
    COMPILE_SECONDS: ClassVar[float] = 1.0
    CONFIGS_PER_UNIT: ClassVar[int] = 8

    def parse(self, text: str) -> KernelConfig | None:
        return next((config for parse in _PARSERS if (config := parse(text))), None)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        live = parse_symbol(text.removesuffix(GENERAL_SUFFIX))
        if live is not None:
            return live, Variant.ANY if text.endswith(GENERAL_SUFFIX) else Variant.WHOLE
        step = parse_step_symbol(text)
        return (step, Variant.WHOLE) if step is not None else None

    def sets(self) -> Sets:
        blocks = sorted({config.blocks() for config in sets.get_autotuning_kernel_configs()})
        return {
            "prog": sets.get_kernel_progression_configs,
            "progall": partial(sets.get_kernel_progression_configs, all=True),
            "tune": sets.get_autotuning_kernel_configs,
            "d64": sets.get_d64_kernel_configs,
            "pairs": get_covering_kernel_configs,
            "previous": get_previous_kernel_configs,
            **{f"{r},{c}": partial(sets.get_configs_with_blocks, r, c) for r, c in blocks},
        }

    def everything(self) -> Sequence[KernelConfig]:
        return [
            *sets.get_kernel_progression_configs(),
            *sets.get_autotuning_kernel_configs(),
            *sets.get_d64_kernel_configs(),
            *get_previous_kernel_configs(),
        ]

    def history(self) -> Sequence[Step]:
        return load_steps()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        if isinstance(config, PreviousKernelConfig):
            return [*violations(config.plain, arch), *body_violations(config)]
        return violations(_own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.d_head not in self.HEAD_DIMENSIONS:
            return f"its head dimensions are {' and '.join(map(str, self.HEAD_DIMENSIONS))}"
        return refusal(capability)

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """The largest block that is built."""
        own = _own(config)
        return own.optimized_softmax, own.B_r, own.B_c

    def how_to_build(self) -> str:
        return "KERNELS=tune (head dimension 128), d64 or all"


def _own(config: KernelConfig) -> FlashForwardKernelConfig:
    assert isinstance(config, FlashForwardKernelConfig)
    return config


FAMILY = Sm80Forward()
