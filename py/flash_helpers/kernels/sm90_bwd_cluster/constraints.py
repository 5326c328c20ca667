"""Why a backward configuration of pairs of thread blocks cannot be built, as sentences."""

from ..backward_config import unsupported_values
from ..contract import Variant
from ..sm90_bwd.config import GROUP_ROWS
from ..sm90_target import SHARED_MEMORY_BYTES, architecture_violations
from .config import ClusterBackwardKernelConfig

HEAD_DIMENSIONS = (192,)  # of three chunks, of which a pair shares the last one


def violations(
    config: ClusterBackwardKernelConfig, arch: tuple[int, int] | None = None
) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config) or _memory_violations(config)
    return [*found, *architecture_violations(arch, "the Hopper family")]


def _value_violations(config: ClusterBackwardKernelConfig) -> list[str]:
    allowed: dict[str, tuple[int, ...]] = {
        "d_head": HEAD_DIMENSIONS,
        "keys_rows": (GROUP_ROWS,),
        "keys_columns": (64,),  # a row of dS is one of a swizzle atom
    }
    found = unsupported_values(config, allowed)
    if config.is_deterministic() and config.wave_pairs > 0:
        found.append(
            f"wave_pairs = {config.wave_pairs} is not supported with sums_order = IN_ORDER, where "
            "the warps that would take care of other sections keep the order: use 0."
        )
    return found


def _memory_violations(config: ClusterBackwardKernelConfig) -> list[str]:
    needed = config.smem_of(Variant.KEYS)
    if needed <= SHARED_MEMORY_BYTES:
        return []
    return [
        f"The blocks of the kernel keys need {needed} bytes of shared memory, but a thread block "
        f"has at most {SHARED_MEMORY_BYTES}."
    ]
