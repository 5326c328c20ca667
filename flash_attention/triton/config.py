"""The parameters of the plain Triton kernel, and which values of them are worth measuring."""

from __future__ import annotations

from dataclasses import asdict, dataclass

BLOCKS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class TritonForwardConfig:
    """BLOCK_M query rows a program, BLOCK_N keys a step; warps of a program, stages of the loads
    that Triton keeps in flight."""

    BLOCK_M: int = 128
    BLOCK_N: int = 64
    num_warps: int = 8
    num_stages: int = 2

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


# By head dimension: (BLOCK_M, BLOCK_N, warps, stages), the default first. None of them spills on
# the architectures that it is for (tests/triton), but one: with triton 3.8 and 3.9, the last of
# d 128 stores and loads 24 bytes on sm_80.
_SPACE = {
    32: ((128, 64, 4, 3), (64, 64, 4, 3), (128, 128, 8, 3)),
    64: ((128, 64, 8, 3), (64, 64, 4, 3), (128, 128, 8, 3), (128, 32, 4, 3), (64, 32, 4, 2)),
    128: ((128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 4, 3)),
    256: ((64, 32, 8, 2),),
}
HEAD_DIMS = tuple(_SPACE)
# With wgmma the operands stay in shared memory: larger blocks fit into the registers.
_HOPPER_SPACE = {
    128: ((128, 128, 8, 2), (64, 64, 4, 2)),
    256: ((64, 64, 8, 2),),
}
_HOPPER = 90


def default_config(d_head: int) -> TritonForwardConfig:
    """What is used where nothing was tuned."""
    return configs(d_head)[0]


def configs(d_head: int, architecture: int = 80) -> list[TritonForwardConfig]:
    """The autotuning space on sm_<architecture>. Raises ValueError for a head dimension that has
    none."""
    if d_head not in HEAD_DIMS:
        raise ValueError(f"head dimension {d_head}: allowed are {', '.join(map(str, HEAD_DIMS))}")
    more = _HOPPER_SPACE.get(d_head, ()) if architecture == _HOPPER else ()
    return [TritonForwardConfig(*values) for values in (*_SPACE[d_head], *more)]


def problems(config: TritonForwardConfig, d_head: int) -> list[str]:
    """Why a configuration cannot be built; empty if it can."""
    found = []
    if d_head not in HEAD_DIMS:
        found.append(f"head dimension {d_head}: allowed are {', '.join(map(str, HEAD_DIMS))}")
    for name in ("BLOCK_M", "BLOCK_N"):
        if (value := getattr(config, name)) not in BLOCKS:
            found.append(f"{name} {value}: allowed are {', '.join(map(str, BLOCKS))}")
    if config.num_warps not in (1, 2, 4, 8, 16):
        found.append(f"num_warps {config.num_warps}: allowed are 1, 2, 4, 8 and 16")
    if not 1 <= config.num_stages <= 8:
        found.append(f"num_stages {config.num_stages}: allowed are 1 to 8")
    return found
