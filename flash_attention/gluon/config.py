"""The parameters of a warp-specialised kernel, and which values of them are worth measuring."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

FENCES = ("none", "pmevent", "membar", "warp")
HEAD_DIMS = (64, 128)
MAX_SHARED_BYTES = 227 * 1024
_BARRIER_BYTES = 1024  # mbarriers, and what Triton keeps beside them
PRODUCER_REGS = 24


@dataclass(frozen=True)
class GluonForwardConfig:
    """One kernel. BLOCK_M query rows a thread block, shared by NUM_MMA_GROUPS groups of
    NUM_MMA_WARPS / NUM_MMA_GROUPS warps; BLOCK_N keys a step; NUM_BUFFERS blocks of K and of V in
    shared memory. Only for WS PP: OVERLAP_FENCE keeps the exponentials beside the tensor cores;
    OPTIMISTIC takes the maximum of a block only where the weights grow too large without.
    PERSISTENT: as many thread blocks as multiprocessors, each for several tiles.
    """

    BLOCK_M: int = 128
    BLOCK_N: int = 128
    NUM_BUFFERS: int = 2
    NUM_MMA_WARPS: int = 8
    NUM_MMA_GROUPS: int = 2
    OVERLAP_FENCE: str = "pmevent"
    OPTIMISTIC: bool = False
    PERSISTENT: bool = False

    @property
    def num_warps(self) -> int:
        """Warps of one group: what Triton calls num_warps (it adds the other partitions)."""
        return self.NUM_MMA_WARPS // self.NUM_MMA_GROUPS

    @property
    def num_stages(self) -> int:
        """Of Triton's own pipeliner, which these kernels do without."""
        return 0

    @property
    def mma_regs(self) -> int:
        """Registers of a thread in a consumer group: what the producer's leave, by eights."""
        groups = self.NUM_MMA_WARPS // 4
        return min((512 - 8 - PRODUCER_REGS) // groups // 8 * 8, 240)

    def shared_bytes(self, d_head: int) -> int:
        """Bytes of shared memory: Q and O tiles, the two rings."""
        rows = 2 * self.BLOCK_M + 2 * self.NUM_BUFFERS * self.BLOCK_N
        return rows * d_head * 2 + _BARRIER_BYTES

    def as_dict(self) -> dict[str, int | str | bool]:
        return asdict(self)


def problems(config: GluonForwardConfig, d_head: int, ping_pong: bool) -> list[str]:
    """Why a configuration cannot be built; empty if it can."""
    found = []
    if d_head not in HEAD_DIMS:
        found.append(f"head dimension {d_head}: allowed are 64 and 128")
    if config.NUM_MMA_GROUPS not in (1, 2, 3):
        return [*found, f"NUM_MMA_GROUPS {config.NUM_MMA_GROUPS}: allowed are 1, 2 and 3"]
    warps, rest = divmod(config.NUM_MMA_WARPS, config.NUM_MMA_GROUPS)
    if rest or warps not in (4, 8):
        found.append(
            f"NUM_MMA_WARPS {config.NUM_MMA_WARPS} for {config.NUM_MMA_GROUPS} groups: each needs "
            "4 or 8 warps"
        )
    rows, rest = divmod(config.BLOCK_M, config.NUM_MMA_GROUPS)
    if rest or warps not in (4, 8) or rows % (16 * warps) or rows not in (64, 128, 256):
        found.append(
            f"BLOCK_M {config.BLOCK_M} for {config.NUM_MMA_GROUPS} groups of {warps} warps: each "
            f"group needs 64, 128 or 256 rows, 16 a warp or a multiple"
        )
    if config.BLOCK_N not in (32, 64, 128, 256):
        found.append(f"BLOCK_N {config.BLOCK_N}: allowed are 32, 64, 128 and 256")
    if not 1 <= config.NUM_BUFFERS <= 8 or (ping_pong and config.NUM_BUFFERS < 2):
        least = 2 if ping_pong else 1  # V of one block is read while K of the next is
        found.append(f"NUM_BUFFERS {config.NUM_BUFFERS}: allowed are {least} to 8")
    if config.NUM_MMA_WARPS > 12:
        found.append(f"NUM_MMA_WARPS {config.NUM_MMA_WARPS}: at most 12 leave enough registers")
    elif config.NUM_MMA_WARPS == 12 and config.BLOCK_N == 256:
        found.append(
            "BLOCK_N 256 with 12 warps: a thread's scores take 128 of its 160 registers, and ptxas "
            "finds no room for the rest"
        )
    if config.OVERLAP_FENCE not in FENCES:
        found.append(f"OVERLAP_FENCE {config.OVERLAP_FENCE!r}: allowed are {', '.join(FENCES)}")
    if (size := config.shared_bytes(d_head)) > MAX_SHARED_BYTES:
        found.append(f"{size} bytes of shared memory: at most {MAX_SHARED_BYTES} are possible")
    if config.OPTIMISTIC and warps in (4, 8) and rows != 16 * warps:
        found.append(f"OPTIMISTIC with {rows} rows in a group of {warps} warps: 16 a warp needed")
    if ping_pong and config.NUM_MMA_GROUPS > 1 and warps != 4:
        found.append(f"groups of {warps} warps cannot take turns: 4 are needed")
    return found


def default_config(ping_pong: bool, d_head: int) -> GluonForwardConfig:
    """What is used where nothing was tuned."""
    base = GluonForwardConfig(NUM_BUFFERS=2 if d_head == 128 else 3, OPTIMISTIC=ping_pong)
    return base if ping_pong else replace(base, OVERLAP_FENCE="none")


def configs(ping_pong: bool, d_head: int) -> list[GluonForwardConfig]:
    """The autotuning space of WS (`ping_pong` False) or WS PP. Raises ValueError for a head
    dimension other than 64 and 128."""
    if d_head not in HEAD_DIMS:
        raise ValueError(f"head dimension {d_head}: allowed are 64 and 128")
    base = default_config(ping_pong, d_head)
    small = replace(base, BLOCK_M=192, BLOCK_N=64, NUM_MMA_WARPS=12, NUM_MMA_GROUPS=3)
    shapes = [base, small, replace(base, BLOCK_N=64, NUM_BUFFERS=4)]
    if d_head == 64 and not ping_pong:  # WS PP would spill: it holds two blocks of scores
        shapes.append(replace(base, BLOCK_M=192, NUM_MMA_WARPS=12, NUM_MMA_GROUPS=3))
    if not ping_pong:
        shapes.append(replace(base, NUM_MMA_GROUPS=1))
    softmaxes = [("none", False)]
    if ping_pong:
        softmaxes = [("pmevent", False), ("warp", False), ("pmevent", True)]
    space = [
        replace(shape, OVERLAP_FENCE=fence, OPTIMISTIC=optimistic, PERSISTENT=persistent)
        for shape in shapes
        for fence, optimistic in softmaxes
        for persistent in (False, True)
        # At d 128 it holds in one of the three groups only; nowhere was it the fastest.
        if not (fence == "warp" and shape.NUM_MMA_GROUPS == 3)
    ]
    return [config for config in space if not problems(config, d_head, ping_pong)]
