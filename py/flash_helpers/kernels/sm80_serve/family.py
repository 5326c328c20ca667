"""The Ampere family's serving kernels: cp.async, ldmatrix and mma.sync."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig
from ..family import Capability
from ..one_set import ServeFamily
from ..problem import AttentionProblem
from ..sm80_target import refusal
from .config import AmpereServeKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .sets import get_ampere_serve_kernel_configs


class Sm80Serve(ServeFamily[AmpereServeKernelConfig]):
    NAME: ClassVar[str] = AmpereServeKernelConfig.FAMILY
    CONFIG = AmpereServeKernelConfig
    SET: ClassVar[str] = "serve"
    TITLE: ClassVar[str] = "Ampere serving"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 64, 64, 4, 2): ampere_serve' or its symbol "
        "'flash_serve_sm80_fp16_d128_r64_c64_w4_s2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    COMPILE_SECONDS: ClassVar[float] = 2.8

    def configs(self) -> Sequence[AmpereServeKernelConfig]:
        return get_ampere_serve_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        most = max(self.HEAD_DIMENSIONS)
        if max(problem.d_head, problem.d_v) > most or problem.d_head % 8 or problem.d_v % 8:
            return f"its head dimensions are multiples of 8 up to {most}"
        return refusal(capability)


FAMILY = Sm80Serve()
