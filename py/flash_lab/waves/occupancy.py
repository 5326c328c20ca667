"""How many blocks of a kernel an SM holds, from its registers, shared memory and threads.

The driver's own answer (cudaOccupancyMaxActiveBlocksPerMultiprocessor) is better where there is a
GPU; this one needs none. Limits and units are those of the tables of compute capabilities in the
CUDA programming guide.
"""

from dataclasses import dataclass

_WARP = 32
# Registers are handed to warps in units of 256 and warps in fours, one for each scheduler.
_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 65536, 256, 4
_SHARED_UNIT = 128
# What the driver keeps of every block's shared memory.
_RESERVED_SHARED = 1024


@dataclass(frozen=True)
class SmLimits:
    """What one SM can hold; bytes of shared memory with the largest carve-out."""

    threads: int
    blocks: int
    shared_bytes: int


_KIB = 1024
LIMITS: dict[tuple[int, int], SmLimits] = {
    (8, 0): SmLimits(2048, 32, 164 * _KIB),
    (8, 6): SmLimits(1536, 16, 100 * _KIB),
    (8, 7): SmLimits(1536, 16, 164 * _KIB),
    (8, 9): SmLimits(1536, 24, 100 * _KIB),
    (9, 0): SmLimits(2048, 32, 228 * _KIB),
    (10, 0): SmLimits(2048, 32, 228 * _KIB),
    (12, 0): SmLimits(1536, 24, 100 * _KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """`limits`: blocks an SM could hold if each resource were the only one."""

    limits: dict[str, int]
    warps_per_block: int
    max_warps: int

    @property
    def blocks_per_sm(self) -> int:
        return min(self.limits.values())

    @property
    def limiter(self) -> str:
        return min(self.limits, key=lambda name: self.limits[name])

    @property
    def occupancy(self) -> float:
        """Part of the warps that an SM can hold, 0..1."""
        return self.blocks_per_sm * self.warps_per_block / self.max_warps

    def __str__(self) -> str:
        return (
            f"{self.blocks_per_sm} block(s) of {self.warps_per_block} warps on an SM, "
            f"{self.occupancy:.1%} of its warps; limited by its {self.limiter}"
        )


def occupancy(
    capability: tuple[int, int], threads: int, registers: int, shared_bytes: int
) -> Occupancy:
    """How many blocks of `threads` with `registers` a thread and `shared_bytes` a block (static and
    dynamic) an SM holds, and what limits them. Raises ValueError for an unknown GPU, and for a
    block that no SM can hold."""
    limits = LIMITS.get(capability)
    if limits is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
        major, minor = capability
        raise ValueError(
            f"compute capability {major}.{minor} is not known: expected one of {known}"
        )
    if not 1 <= threads <= 1024 or not 0 <= registers <= 255 or shared_bytes < 0:
        raise ValueError(
            f"{threads} threads, {registers} registers, {shared_bytes} bytes: expected 1..1024 "
            "threads, 0..255 registers a thread and 0 or more bytes"
        )
    warps = -(-threads // _WARP)
    of_warp = _up(max(registers, 1) * _WARP, _REGISTER_UNIT)
    warps_by_registers = _REGISTERS // of_warp // _WARP_UNIT * _WARP_UNIT
    shared = _up(shared_bytes + _RESERVED_SHARED, _SHARED_UNIT)
    found = {
        "registers": warps_by_registers // warps,
        "shared memory": limits.shared_bytes // shared,
        "threads": limits.threads // _WARP // warps,
        "blocks": limits.blocks,
    }
    result = Occupancy(found, warps, limits.threads // _WARP)
    if result.blocks_per_sm < 1:
        raise ValueError(
            f"no SM of compute capability {capability[0]}.{capability[1]} holds such a block: its "
            f"{result.limiter} are too many"
        )
    return result


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
