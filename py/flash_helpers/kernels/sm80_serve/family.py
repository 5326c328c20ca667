"""The Ampere family's serving kernels: cp.async, ldmatrix and mma.sync."""

from collections.abc import Sequence
from typing import ClassVar

from .. import serve_names
from ..architecture import dotted
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from .config import AmpereServeKernelConfig
from .constraints import ALLOWED_VALUES, MINIMUM_ARCH, violations
from .sets import get_ampere_serve_kernel_configs


class Sm80Serve(Family):
    NAME: ClassVar[str] = AmpereServeKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere serving"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 64, 64, 4, 2): ampere_serve' or its symbol "
        "'flash_serve_sm80_fp16_d128_r64_c64_w4_s2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    SERVES: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return serve_names.parse(AmpereServeKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return serve_names.parse_symbol(AmpereServeKernelConfig, text)

    def sets(self) -> Sets:
        return {"serve": get_ampere_serve_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_ampere_serve_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        assert isinstance(config, AmpereServeKernelConfig)
        return violations(config, arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        most = max(self.HEAD_DIMENSIONS)
        if max(problem.d_head, problem.d_v) > most or problem.d_head % 8 or problem.d_v % 8:
            return f"its head dimensions are multiples of 8 up to {most}"
        if capability is not None and capability < MINIMUM_ARCH:
            needed, found = dotted(MINIMUM_ARCH), dotted(capability)
            return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def candidates(self) -> Sequence[KernelConfig]:
        return get_ampere_serve_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=serve or all"


FAMILY = Sm80Serve()
