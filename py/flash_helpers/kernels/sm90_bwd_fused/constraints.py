"""Why a fused backward configuration of the Hopper family cannot be built, as sentences."""

from ..backward_config import unsupported_values
from ..contract import Variant
from ..sm90_bwd.config import GROUP_ROWS
from ..sm90_target import SHARED_MEMORY_BYTES, architecture_violations
from .config import GROUPS, SENDERS, AddBy, FusedBackwardKernelConfig

HEAD_DIMENSIONS = (64, 96, 128)
# Queries of a block, by head dimension: with more, scores and sums do not fit a thread's registers.
COLUMNS = {64: (128,), 96: (64, 80), 128: (64, 80)}


def violations(config: FusedBackwardKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config) or _memory_violations(config)
    return [*found, *architecture_violations(arch, "the Hopper family")]


def _value_violations(config: FusedBackwardKernelConfig) -> list[str]:
    allowed: dict[str, tuple[int, ...]] = {
        "d_head": HEAD_DIMENSIONS,
        "keys_rows": (GROUPS * GROUP_ROWS,),
        "keys_columns": COLUMNS.get(config.d_head, (config.keys_columns,)),
    }
    found = unsupported_values(config, allowed)
    if config.ds_stages < 2:
        found.append(
            "ds_stages = 1 is not supported: dQ is multiplied while the next dS is written."
        )
    if config.add_by is AddBy.IN_ORDER and config.staging_buffers() < SENDERS:
        found.append(
            f"keys_columns = {config.keys_columns} is not supported with d_head = {config.d_head} "
            f"in order: each of {SENDERS} warps that add needs a staging buffer of its own."
        )
    return found


def _memory_violations(config: FusedBackwardKernelConfig) -> list[str]:
    needed = config.smem_of(Variant.KEYS)
    if needed <= SHARED_MEMORY_BYTES:
        return []
    return [
        f"The blocks of the kernel keys need {needed} bytes of shared memory, but a thread block "
        f"has at most {SHARED_MEMORY_BYTES}."
    ]
