"""The parameters of the kernels for products of matrices, and which are worth measuring."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

_SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}
_BLOCKS = (16, 32, 64, 128, 256)
_WARPS = (1, 2, 4, 8, 16)
# Tiles fewer than this leave multiprocessors without work: smaller ones are then the default.
_FEW_TILES = 100


@dataclass(frozen=True)
class MatmulConfig:
    """A program computes BLOCK_M x BLOCK_N elements, BLOCK_K products at a time; GROUP_M rows of
    tiles share operands in the L2 cache; num_stages steps' operands are loaded ahead (1: none)."""

    BLOCK_M: int = 64
    BLOCK_N: int = 64
    BLOCK_K: int = 32
    GROUP_M: int = 8
    num_warps: int = 4
    num_stages: int = 3

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tiles(self, m: int, n: int) -> int:
        return -(-m // self.BLOCK_M) * -(-n // self.BLOCK_N)

    def shared_bytes(self, item: int) -> int:
        """Of the operands of all stages."""
        return self.num_stages * (self.BLOCK_M + self.BLOCK_N) * self.BLOCK_K * item


DIRECT = MatmulConfig(BLOCK_M=32, BLOCK_N=64, num_stages=1)

# (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, warps, stages), the largest tiles first; the last is for
# products of few tiles. By architecture, and by what multiplies: tensor cores on 16-bit numbers,
# tensor cores on fp32 once (tf32) or three times (tf32x3), or none (ieee).
_SPACE = {
    (80, "half"): (
        (128, 256, 32, 8, 8, 3), (128, 128, 64, 8, 8, 3), (128, 128, 32, 8, 4, 4),
        (256, 128, 32, 8, 8, 3), (128, 64, 32, 8, 4, 4), (64, 128, 32, 8, 4, 4),
        (64, 64, 64, 8, 4, 3), (64, 64, 32, 8, 4, 4),
    ),
    (90, "half"): (
        (128, 256, 64, 8, 8, 3), (128, 256, 64, 8, 8, 4), (256, 128, 64, 8, 8, 3),
        (128, 128, 64, 8, 4, 4), (128, 128, 64, 8, 8, 4), (64, 256, 64, 8, 4, 4),
        (128, 64, 64, 8, 4, 4), (64, 64, 64, 8, 4, 4),
    ),
    (80, "tf32"): (
        (128, 128, 32, 8, 8, 3), (128, 64, 32, 8, 4, 3), (64, 64, 32, 8, 4, 3),
    ),
    (90, "tf32"): (
        (128, 256, 32, 8, 8, 3), (128, 128, 32, 8, 8, 4), (128, 64, 32, 8, 4, 4),
        (64, 64, 32, 8, 4, 4),
    ),
    (80, "tf32x3"): ((128, 128, 32, 8, 8, 3), (64, 64, 32, 8, 4, 3)),
    (90, "tf32x3"): (
        (128, 128, 32, 8, 8, 4), (128, 64, 32, 8, 4, 4), (64, 64, 32, 8, 4, 4),
    ),
    (80, "ieee"): (
        (128, 64, 16, 8, 8, 3), (64, 64, 16, 8, 4, 3), (32, 64, 16, 8, 4, 3),
    ),
}  # fmt: skip


def kind_of_product(item: int, precision: str) -> str:
    return "half" if item == 2 else precision


def configs(m: int, n: int, kind: str, architecture: int) -> list[MatmulConfig]:
    """The autotuning space on sm_<architecture>, the default first: the largest tile of which there
    are enough."""
    newest = 90 if architecture >= 90 else 80
    rows = _SPACE.get((newest, kind)) or _SPACE[80, kind]
    space = [MatmulConfig(*row) for row in rows]
    first = next((c for c in space if c.tiles(m, n) >= _FEW_TILES), space[-1])
    return [first, *(c for c in space if c != first)]


def without_overlap(config: MatmulConfig) -> MatmulConfig:
    """v1 of a configuration: nothing in flight, tiles row by row."""
    return replace(config, num_stages=1, GROUP_M=1)


def problems(config: MatmulConfig, item: int, architecture: int) -> list[str]:
    """Why a configuration cannot be built for elements of `item` bytes; empty if it can."""
    found = [
        f"{name} {value}: allowed are {', '.join(map(str, _BLOCKS))}"
        for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")
        if (value := getattr(config, name)) not in _BLOCKS
    ]
    if config.GROUP_M < 1:
        found.append(f"GROUP_M {config.GROUP_M}: at least 1")
    if config.num_warps not in _WARPS:
        found.append(f"num_warps {config.num_warps}: allowed are {', '.join(map(str, _WARPS))}")
    if not 1 <= config.num_stages <= 8:
        found.append(f"num_stages {config.num_stages}: allowed are 1 to 8")
    most = _SHARED_BYTES[90 if architecture >= 90 else 80]
    if not found and (size := config.shared_bytes(item)) > most:
        found.append(f"{size} bytes of shared memory: at most {most} are possible")
    return found
