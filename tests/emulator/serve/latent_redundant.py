"""What the kernels for latent caches could do without, each with its proof (campaign.py)."""

from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sm80_serve_mla.config import AmpereMlaKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig

from ..redundant import Redundant
from ..sm90.campaign import FENCE, SYNCWARP, WAIT

WAIT_GROUP = ("cp.async.wait_group removed", "wait_group weakened")
_SYNCWARP_BEFORE = "__syncwarp();  // all lanes have read what was there"


def _either(config: KernelConfig, variant: Variant) -> bool:
    return isinstance(config, AmpereMlaKernelConfig)


def _hopper(config: KernelConfig, variant: Variant) -> bool:
    return isinstance(config, HopperMlaKernelConfig)


def _ampere(config: KernelConfig, variant: Variant) -> bool:
    return _either(config, variant) and not _hopper(config, variant)


def _reads_queries_again(config: KernelConfig, variant: Variant) -> bool:
    """From shared memory, for each block of keys."""
    return (
        isinstance(config, AmpereMlaKernelConfig) and _ampere(config, variant) and config.B_r > 16
    )


LATENT = (
    Redundant(
        SYNCWARP, _SYNCWARP_BEFORE, "nothing was there", _either, within="find_pieces<k"
    ),
    *(
        Redundant(
            mutant,
            "ptx::cp_async_wait_group<0>();",
            """behind the last tile: every block that was copied was waited for and multiplied, and
            the groups behind it are empty""",
            _ampere,
        )
        for mutant in WAIT_GROUP
    ),
    Redundant(
        "bar.sync removed",
        "__syncthreads();  // Q is visible",
        "Q is read behind the barrier by which the first block of keys is visible",
        _reads_queries_again,
    ),
    Redundant(
        SYNCWARP,
        "__syncwarp();",
        "the piece is added to the ring before they are read, where the lanes meet",
        _ampere,
        within="ring_.add(pieces_.next(",
    ),
    Redundant(
        FENCE,
        "Mm::template issue_scores<kRight>(at_, stage, s);",
        "nothing touches the scores between the fence that precedes their left half and this one",
        _hopper,
    ),
    Redundant(
        "wgmma.commit_group removed",
        "Mm::template issue_scores<kLeft>(at_, stage, s);",
        "these belong to the next group then, which the same wait is for",
        _hopper,
    ),
    Redundant(
        WAIT,
        "sm90::wait_phase(at_.full(stage, kRight), ring_.parity);  // it is",
        """the other group has waited for this phase before it computed the weights that it has told
        at a barrier""",
        _hopper,
    ),
    Redundant(
        SYNCWARP, _SYNCWARP_BEFORE, "the lanes have met since, to park the pieces", _hopper,
        within="parked = piece;",
    ),
    *(
        Redundant(SYNCWARP, "__syncwarp();", proof, _hopper, within=line)
        for line, proof in (
            ("const auto first = pieces.next(", "__syncthreads() stands before they are read"),
            ("piece = pieces.next(args_, abreast_)", "the piece is parked before they are read"),
            ("parked = piece;", "the groups' barrier stands before it is read"),
        )
    ),
)  # fmt: skip
