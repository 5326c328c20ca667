"""Why an MLA configuration of the Hopper family cannot be built, as sentences."""

from ..sm80_serve.constraints import values_violations
from ..sm90_target import architecture_violations
from .config import HopperMlaKernelConfig

# Scores of one wgmma's rows, an output that two warpgroups' registers hold, and the stages that fit
# shared memory beside Q.
ALLOWED_VALUES: dict[str, tuple[int, ...]] = {
    "d_head": (576,),
    "B_r": (64,),
    "B_c": (64,),
    "n_warps": (8,),
    "n_stages": (2,),
}


def violations(config: HopperMlaKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = values_violations(config, ALLOWED_VALUES)
    return [*found, *architecture_violations(arch, "the Hopper MLA family")]
