"""Blocks and occupancy of our own kernels, by name, for a shape of the problem."""

from dataclasses import dataclass

from flash_helpers.build.kernel_ptx import kernel_cubin
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import KernelConfig, Variant

from ..sass.disassembler import cuobjdump
from ..sass.listing import parse_usage
from .occupancy import occupancy

_CAPABILITY = (9, 0)  # of kernel_cubin's architecture


@dataclass(frozen=True)
class Residency:
    """`origin`: who says so."""

    blocks_per_sm: int
    origin: str


def n_blocks(config: KernelConfig, batch: int, heads: int, seq_len: int) -> int:
    """Blocks of a launch, or tiles of a persistent kernel, which are its blocks here: one for every
    block of queries, head and batch entry; of the first kernel of gradients, of keys."""
    if isinstance(config, BackwardKernelConfig):
        sizes = Sizes(batch, seq_len, seq_len, heads, heads)
        return config.grid(config.first_variant(), sizes)
    return batch * heads * -(-seq_len // config.blocks()[0])


def residency(config: KernelConfig, variant: Variant | None = None) -> Residency:
    """The residency of one of the configuration's kernels, by default of the first. From the driver
    if this build has the kernel and there is a GPU, else computed from what nvcc compiles now.
    Raises BuildError without nvcc, SassError without cuobjdump, ValueError for a variant that the
    configuration has not."""
    variant = variant or config.first_variant()
    if config.is_persistent(variant):
        return Residency(1, "one persistent block for each SM")
    return of_driver(config, variant) or of_compiler(config, variant)


def of_driver(config: KernelConfig, variant: Variant) -> Residency | None:
    try:
        from flash_attention.interface import built_kernel_id
        from flash_attention.library import load_library

        if not load_library().device_count():
            return None
        kernel_id = built_kernel_id(config, variant)
        if kernel_id is None:
            return None
        found = load_library().kernel_attributes(kernel_id, 0, variant.value)
    except (ImportError, RuntimeError):  # no build, no driver, no code for this GPU
        return None
    return Residency(found["blocks_per_multiprocessor"], "the driver, for this GPU")


def of_compiler(config: KernelConfig, variant: Variant) -> Residency:
    text = cuobjdump("-res-usage", file=kernel_cubin(config, variant=variant))
    usage = next(u for u in parse_usage(text) if u.kernel == config.symbol(variant))
    found = occupancy(_CAPABILITY, config.n_threads(), usage.registers, config.smem_bytes())
    return Residency(
        found.blocks_per_sm,
        f"computed for compute capability 9.0: {usage.registers} registers, "
        f"{config.smem_bytes()} bytes of shared memory, {config.n_threads()} threads",
    )
