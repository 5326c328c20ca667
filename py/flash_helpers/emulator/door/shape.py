"""Which launches there are."""

from ..errors import InvalidLaunchError
from .abi import KernelInfo

MAX_THREADS_PER_BLOCK = 1024
MAX_CLUSTER = 16
MAX_SHARED_BYTES = 227 * 1024  # the most that any GPU of these families gives one block

Dim3 = tuple[int, int, int]


def check_shape(
    name: str, info: KernelInfo, grid: Dim3, block: Dim3, shared_bytes: int, cluster: int
) -> None:
    """Raises InvalidLaunchError."""
    threads = block[0] * block[1] * block[2]
    if min(grid) < 1 or min(block) < 1 or threads > MAX_THREADS_PER_BLOCK:
        raise InvalidLaunchError(
            f"{name}: grid {grid} of blocks {block}; all sizes must be at least 1 and a "
            f"block may have at most {MAX_THREADS_PER_BLOCK} threads (this one: {threads})"
        )
    total = shared_bytes + info.static_shared_bytes
    if shared_bytes < 0 or total > MAX_SHARED_BYTES:
        raise InvalidLaunchError(
            f"{name}: {shared_bytes} bytes of dynamic and {info.static_shared_bytes} of "
            f"static shared memory; a block may have 0 to {MAX_SHARED_BYTES}"
        )
    if info.cluster not in (0, cluster):
        raise InvalidLaunchError(
            f"{name}: clusters of {cluster}; the kernel declares clusters of {info.cluster}"
        )
    if not 1 <= cluster <= MAX_CLUSTER or grid[0] % cluster:
        raise InvalidLaunchError(
            f"{name}: clusters of {cluster} in a grid of {grid}; allowed are 1 to {MAX_CLUSTER} "
            "blocks, which divide its first size"
        )
