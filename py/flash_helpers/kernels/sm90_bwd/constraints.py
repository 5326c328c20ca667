"""Why a backward configuration of the Hopper family cannot be built, as sentences."""

from ..backward_config import unsupported_values
from ..contract import Variant
from ..sm90_target import SHARED_MEMORY_BYTES, architecture_violations
from .config import GROUP_ROWS, HopperBackwardKernelConfig

HEAD_DIMENSIONS = (64, 96, 128, 192, 256)
# A thread of one group would start with more registers than setmaxnreg is to raise it to.
ROWS = (2 * GROUP_ROWS, 3 * GROUP_ROWS)
COLUMNS = (64, 128)  # whole rows of the map of RowStats

# Registers of a consumer's thread beside the sums and the scores in fp32: addresses, statistics,
# loop, and weights in 16 bits as far as they do not take the scores' place.
OTHER_REGISTERS = 32


def violations(
    config: HopperBackwardKernelConfig, arch: tuple[int, int] | None = None
) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config)
    if not found:
        found = [*_register_violations(config), *_memory_violations(config)]
    return [*found, *architecture_violations(arch, "the Hopper family")]


def _value_violations(config: HopperBackwardKernelConfig) -> list[str]:
    allowed: dict[str, tuple[int, ...]] = {"d_head": HEAD_DIMENSIONS}
    allowed["keys_rows"] = (GROUP_ROWS,) if config.splits_sums(Variant.KEYS) else ROWS
    allowed |= {"keys_columns": COLUMNS, "queries_rows": ROWS, "queries_columns": COLUMNS}
    found = unsupported_values(config, allowed)
    if config.queries_stages < 2:
        found.append("queries_stages = 1 is not supported: of V there is one stage less.")
    return found


def _register_violations(config: HopperBackwardKernelConfig) -> list[str]:
    found = []
    for variant in (Variant.KEYS, Variant.QUERIES):
        sums = 2 if variant is Variant.KEYS and not config.splits_sums(variant) else 1
        needed = sums * config.d_head // 2 + config.shape(variant)[1] + OTHER_REGISTERS
        available = 160 if config.groups(variant) == 3 else 240
        if needed > available:
            found.append(
                f"The gradients and scores of the kernel {variant.value} need about {needed} "
                f"registers of a consumer's thread, but with {config.groups(variant)} groups it "
                f"has {available}."
            )
    return found


def _memory_violations(config: HopperBackwardKernelConfig) -> list[str]:
    return [
        f"The blocks of the kernel {variant.value} need {config.smem_of(variant)} bytes of shared "
        f"memory, but a thread block has at most {SHARED_MEMORY_BYTES}."
        for variant in (Variant.KEYS, Variant.QUERIES)
        if config.smem_of(variant) > SHARED_MEMORY_BYTES
    ]
