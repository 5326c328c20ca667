"""Which kernel of a configuration a problem gets, and whether there is one."""

from .contract import KernelConfig, Variant


def has_kernel_for(
    config: KernelConfig, seqlen_q: int, seqlen_k: int, causal: bool, *, emulated: bool = False
) -> bool:
    """Whether a build, or the emulator, has a kernel of this configuration for a problem."""
    there = config.variants() if emulated else config.built_variants()
    return config.variant_for(seqlen_q, seqlen_k, causal) in there


def launched_symbol(config: KernelConfig, seqlen_q: int, seqlen_k: int, causal: bool) -> str:
    """The symbol of the kernel that `forward` launches for a problem that the configuration has
    one for."""
    return config.symbol(config.variant_for(seqlen_q, seqlen_k, causal))


def takes_everything(config: KernelConfig) -> bool:
    """Whether what a build has of this configuration takes any lengths and the causal mask."""
    return Variant.ANY in config.built_variants()
