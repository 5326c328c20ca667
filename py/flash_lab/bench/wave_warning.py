"""What a measured row says about its last wave of blocks."""

from __future__ import annotations

from ..waves.kernels import n_blocks
from ..waves.plan import plan
from .results import config_of, gpu_sms
from .row import Row


def wave_warning(row: Row) -> str:
    """About a measured row of one of our kernels (bench/row.py): what its last wave wastes;
    empty if that is little, or not known. With a causal mask blocks differ in length, which fills
    the end of the launch: no warning then."""
    sms, problem, config = gpu_sms(row.environment), row.problem, config_of(row)
    if not sms or problem.causal or config is None:
        return ""
    blocks = n_blocks(config, problem.batch, problem.n_heads, problem.seqlen_q)
    return plan(blocks, sms, row.blocks_per_sm or 1).warning()
