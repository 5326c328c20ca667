"""Why a Hopper-family configuration cannot be built, as sentences."""

from collections.abc import Callable

from ..sm90_target import SHARED_MEMORY_BYTES, architecture_violations
from .config import HopperForwardKernelConfig, MaxPolicy

HEAD_DIMENSIONS = (64, 96, 128, 192, 256)
# The N of wgmma that ptx/wgmma.cuh has: of Q K^T the block_n, of P V the head dimension.
WGMMA_COLUMNS = (48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)
# A thread of one group would start with more registers than setmaxnreg is to raise it to, one of
# four groups with 102.
MMA_GROUPS = (2, 3)
Q_BUFFERS = (1, 2)

# Registers of a consumer's thread beside output, scores and probabilities: row statistics,
# descriptors, loop. Measured with ptxas 13.0 over head sizes, blocks and groups: with less than
# this, every kernel with `overlap` spills or has its wgmmas serialised (C7512). Some
# options take more; the build is the judge of those.
OTHER_REGISTERS = 32


def violations(config: HopperForwardKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config)
    if not found:
        found = [*_register_violations(config), *_memory_violations(config)]
    return [*found, *architecture_violations(arch, "the Hopper family")]


def working_registers(config: HopperForwardKernelConfig) -> int:
    """32-bit registers of a consumer's thread for output, scores, and probabilities in 16 bits:
    with `overlap` the scores of one block are in flight beside the probabilities of the block
    before."""
    probabilities = config.block_n // 4 if config.overlap else 0
    return config.value_columns() // 2 + config.block_n // 2 + probabilities


def _value_violations(config: HopperForwardKernelConfig) -> list[str]:
    found = []
    for name, allowed in (
        ("d_head", HEAD_DIMENSIONS),
        ("block_n", WGMMA_COLUMNS),
        ("n_mma_groups", MMA_GROUPS),
        ("n_q_buffers", Q_BUFFERS),
    ):
        value = getattr(config, name)
        if value not in allowed:
            choices = " or ".join(map(str, allowed))
            found.append(f"{name} = {value} is not supported: it must be {choices}.")
    return found + [sentence for breaks_it, sentence in _RULES if breaks_it(config)]


# What an option needs of others, in either family with these kernels.
_RULES: tuple[tuple[Callable[[HopperForwardKernelConfig], bool], str], ...] = (
    (
        lambda c: c.o_in_q and c.n_q_buffers != 1,
        "o_in_q needs n_q_buffers = 1: the output is staged in the place of a single Q.",
    ),
    (
        lambda c: c.max_policy is MaxPolicy.OPTIMISTIC and not c.overlap,
        "max_policy OPTIMISTIC needs overlap: other kernels compute every maximum anyway.",
    ),
)


def _register_violations(config: HopperForwardKernelConfig) -> list[str]:
    needed = working_registers(config) + OTHER_REGISTERS
    if needed <= config.consumer_registers():
        return []
    return [
        f"Output, scores and probabilities for d_head = {config.d_head} and block_n = "
        f"{config.block_n} need about {needed} registers of a consumer's thread, but with "
        f"{config.n_mma_groups} groups it has {config.consumer_registers()}."
    ]


def _memory_violations(config: HopperForwardKernelConfig) -> list[str]:
    if config.smem_bytes() <= SHARED_MEMORY_BYTES:
        return []
    return [
        f"Q, O and {config.n_buffers} buffers for K and V need {config.smem_bytes()} bytes of "
        f"shared memory, but a thread block has at most {SHARED_MEMORY_BYTES}."
    ]
