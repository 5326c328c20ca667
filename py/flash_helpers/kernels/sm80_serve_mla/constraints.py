"""Why an MLA configuration of the Ampere family cannot be built, as sentences."""

from ..sm80_serve.constraints import arch_violations, values_violations
from .config import AmpereMlaKernelConfig

ALLOWED_VALUES: dict[str, tuple[int, ...]] = {
    "d_head": (576,),
    "B_r": (16, 32, 64),
    "B_c": (32, 64),
    "n_warps": (4, 8),
    "n_stages": (2, 3),
}


def violations(config: AmpereMlaKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = values_violations(config, ALLOWED_VALUES)
    if not found and config.B_c // config.key_warps() < 8:
        found = [
            f"B_c = {config.B_c} is too small: {config.key_warps()} warps share the keys of a "
            "block, 8 or more each."
        ]
    return [*found, *(() if found else arch_violations(config, arch))]
