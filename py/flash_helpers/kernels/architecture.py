"""What the architectures of GPUs offer, as far as constraints ask for it."""

import re

# Shared memory that one thread block may ask for (opt-in), CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability": the total per multiprocessor less the
# 1 KB that the system keeps for each block.
_KIB = 1024
SYSTEM_SHARED_MEMORY = _KIB
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
# An architecture that is not in the table gets the smallest limit since compute capability 8.0.
UNKNOWN_ARCH_SHARED_MEMORY = min(SHARED_MEMORY_PER_BLOCK.values())

MAX_REGISTERS_PER_THREAD = 255
WARP_SIZE = 32

# The emulator's: few, so that each block of a persistent kernel computes several tiles.
EMULATED_MULTIPROCESSORS = 3


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


def dotted(arch: tuple[int, int]) -> str:
    """`8.6`."""
    return f"{arch[0]}.{arch[1]}"
