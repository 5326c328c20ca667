"""What a measured row says about its last wave of blocks."""

from __future__ import annotations

from ..waves.kernels import n_blocks
from ..waves.plan import plan
from .records import Record
from .results import config_of, gpu_sms


def wave_warning(row: Record) -> str:
    """About a measured row of one of our kernels (bench/records.py): what its last wave wastes;
    empty if that is little, or not known. With a causal mask blocks differ in length, which fills
    the end of the launch: no warning then."""
    sms, shape, config = gpu_sms(row.get("environment", {})), row["shape"], config_of(row)
    if not sms or shape.get("causal") or config is None:
        return ""
    blocks = n_blocks(config, shape["batch"], shape["n_heads"], shape["seq_len"])
    return plan(blocks, sms, row.get("blocks_per_sm") or 1).warning()
