"""Why a configuration cannot be built, as sentences; and what its registers are likely to cost.

Registers are advice, not a verdict: when the working set is larger than the register file the
compiler spills and the kernel is slow but correct, and several steps of `progall` do exactly
that on purpose. (The build report fails on spills that are not on its allow-list.) Only an
accumulator that does not fit the registers *by itself* is a violation: every mma of its loop
would then go through local memory, and no allow-list entry could justify that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..contract import KernelConfig
from ..sm90_fwd.config import HopperForwardKernelConfig
from ..sm90_fwd.constraints import hopper_violations
from .config import FlashForwardKernelConfig

MMA_K = 16  # depth of one k-tile of mma.sync.m16n8k16
MMA_M = 16  # rows of one mma
WARP_SIZE = 32
MAX_REGISTERS_PER_THREAD = 255

ALLOWED_VALUES = {
    "d_head": (64, 128),
    "B_r": (64, 128),
    "B_c": (32, 64, 128),
    "n_warps": (4, 8),
}

MINIMUM_ARCH = (8, 0)  # cp.async, ldmatrix and the bf16 mma

# Shared memory that one thread block may ask for (opt-in), CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability": the total per multiprocessor less the
# 1 KB that the system keeps for each block.
_KIB = 1024
SHARED_MEMORY_PER_BLOCK = {
    (8, 0): 163 * _KIB,
    (8, 6): 99 * _KIB,
    (8, 7): 163 * _KIB,
    (8, 9): 99 * _KIB,
    (9, 0): 227 * _KIB,
    (10, 0): 227 * _KIB,
    (10, 3): 227 * _KIB,
    (11, 0): 227 * _KIB,
    (12, 0): 99 * _KIB,
    (12, 1): 99 * _KIB,
}
# An architecture that is not in the table gets the smallest limit since Ampere.
UNKNOWN_ARCH_SHARED_MEMORY = min(SHARED_MEMORY_PER_BLOCK.values())


def violations(config: KernelConfig, arch: str | tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason why `config` cannot be built (for `arch`, such as '8.0' or
    (8, 0), if given). An empty list: it can."""
    target = None if arch is None else parse_arch(arch)
    if isinstance(config, HopperForwardKernelConfig):
        return hopper_violations(config, target)
    assert isinstance(config, FlashForwardKernelConfig)
    return _sm80_violations(config, target)


def _sm80_violations(config: FlashForwardKernelConfig, arch: tuple[int, int] | None) -> list[str]:
    found = [*_value_violations(config), *_divisibility_violations(config)]
    found += _register_violations(config)
    found += config.body_violations()
    if arch is not None:
        found += _arch_violations(config, arch)
    return found


def parse_arch(arch: str | tuple[int, int]) -> tuple[int, int]:
    """(8, 6) from '8.6', '8.6+PTX', '86', 'sm_86', 'compute_86' or (8, 6); '9.0a' is (9, 0)."""
    if isinstance(arch, tuple):
        return arch
    match = re.fullmatch(
        r"(?:sm_|compute_)?([1-9][0-9]?)([0-9])[af]?|([1-9][0-9]?)\.([0-9])[af]?(?:\+PTX)?", arch
    )
    if match is None:
        raise ValueError(f"architecture {arch!r} is not valid: expected a form such as '8.0', '90'")
    major, minor = (group for group in match.groups() if group is not None)
    return int(major), int(minor)


def _value_violations(config: FlashForwardKernelConfig) -> list[str]:
    found = []
    for name, allowed in ALLOWED_VALUES.items():
        value = getattr(config, name)
        if value not in allowed:
            choices = " or ".join(map(str, allowed))
            found.append(f"{name} = {value} is not supported: it must be {choices}.")
    if config.n_warps == 8 and config.B_r != 128:
        found.append(f"n_warps = 8 needs B_r = 128, but B_r is {config.B_r}.")
    return found


def _divisibility_violations(config: FlashForwardKernelConfig) -> list[str]:
    found = []
    rows = MMA_M * config.n_warps
    if config.B_r % rows:
        found.append(
            f"B_r = {config.B_r} is not divisible by {rows}: each of the {config.n_warps} warps "
            f"takes whole tiles of {MMA_M} rows."
        )
    for name in ("d_head", "B_c"):
        if getattr(config, name) % MMA_K:
            found.append(
                f"{name} = {getattr(config, name)} is not divisible by {MMA_K}, "
                "the depth of one k-tile."
            )
    for operand, depth_name in (("Q", "d_head"), ("K", "d_head"), ("V", "B_c")):
        tiles = getattr(config, f"{operand}_mma_load_K_tiles")
        k_tiles = getattr(config, depth_name) // MMA_K
        if tiles and k_tiles % tiles:
            found.append(
                f"{operand}_mma_load_K_tiles = {tiles} does not divide the {k_tiles} k-tiles of "
                f"{depth_name} = {getattr(config, depth_name)}."
            )
    return found


def _register_violations(config: FlashForwardKernelConfig) -> list[str]:
    estimate = register_estimate(config)
    return [
        f"The accumulator of {what} alone needs {count} registers per thread, but a thread has "
        f"at most {MAX_REGISTERS_PER_THREAD}: more warps or smaller blocks are needed."
        for what, count in (("O", estimate.o_accumulator), ("S", estimate.s_accumulator))
        if count > MAX_REGISTERS_PER_THREAD
    ]


def _arch_violations(config: FlashForwardKernelConfig, arch: tuple[int, int]) -> list[str]:
    name = f"{arch[0]}.{arch[1]}"
    if arch < MINIMUM_ARCH:
        minimum = f"{MINIMUM_ARCH[0]}.{MINIMUM_ARCH[1]}"
        needs = f"cp.async, ldmatrix and bf16 mma need {minimum} or later"
        return [f"Architecture {name} is not supported: {needs}."]
    limit = SHARED_MEMORY_PER_BLOCK.get(arch, UNKNOWN_ARCH_SHARED_MEMORY)
    if config.smem_bytes() > limit:
        needed = f"The Q, K and V blocks need {config.smem_bytes()} bytes of shared memory"
        return [f"{needed}, but a thread block on architecture {name} has at most {limit}."]
    return []


@dataclass(frozen=True)
class RegisterEstimate:
    """32-bit registers per thread for the data that the algorithm keeps in registers.

    It takes the configuration at its word. Addresses and loop counters come on top; on the other
    hand the compiler may move an `ldmatrix` next to its `mma`, so a sum somewhat above 255 need
    not spill. What ptxas reports is the truth; this tells where to look.
    """

    o_accumulator: int
    s_accumulator: int
    q_fragments: int
    k_fragments: int
    v_fragments: int
    row_statistics: int
    q_is_resident: bool  # Q stays in registers for the whole kernel

    @property
    def qk_phase(self) -> int:
        """S = Q K^T: O is idle but alive."""
        operands = self.q_fragments + self.k_fragments
        return self.o_accumulator + self.s_accumulator + operands + self.row_statistics

    @property
    def pv_phase(self) -> int:
        """O += P V: P is S in 16 bits, so it takes half of S's registers."""
        operands = self.s_accumulator // 2 + self.v_fragments
        resident = self.q_fragments if self.q_is_resident else 0
        return self.o_accumulator + operands + resident + self.row_statistics

    @property
    def total(self) -> int:
        return max(self.qk_phase, self.pv_phase)


def register_estimate(config: FlashForwardKernelConfig) -> RegisterEstimate:
    """What the accumulators and the operand fragments of `config` need, per thread."""
    rows = config.B_r / config.n_warps

    def fragment(extent: float, depth: int, tiles: int) -> int:
        # Two 16-bit elements in a register; 0 tiles means that the whole depth is resident.
        held = tiles * MMA_K if tiles else depth
        return round(extent * held / (2 * WARP_SIZE))

    return RegisterEstimate(
        o_accumulator=round(rows * config.d_head / WARP_SIZE),
        s_accumulator=round(rows * config.B_c / WARP_SIZE),
        q_fragments=fragment(rows, config.d_head, config.Q_mma_load_K_tiles),
        k_fragments=fragment(config.B_c, config.d_head, config.K_mma_load_K_tiles),
        v_fragments=fragment(config.d_head, config.B_c, config.V_mma_load_K_tiles),
        row_statistics=round(2 * rows / 8),  # max and sum; a thread has a quarter of each row
        q_is_resident=config.Q_mma_load_K_tiles == 0,
    )


def register_advice(config: FlashForwardKernelConfig) -> str | None:
    """A sentence when the working set cannot stay in registers, so that spills are expected."""
    total = register_estimate(config).total
    if total <= MAX_REGISTERS_PER_THREAD:
        return None
    return (
        f"About {total} registers per thread are wanted and {MAX_REGISTERS_PER_THREAD} exist: "
        "expect spills to local memory."
    )
