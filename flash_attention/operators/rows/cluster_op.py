"""Kernels whose rows the programs of a cluster share (cluster.py), as Ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...triton_kit.clusters import MOST_BLOCKS, make_clustered
from ...triton_kit.op import Grid
from ..hopper import HOPPER, check_hopper
from ..launching import is_recorded
from .best_op import BestOp
from .op import VECTOR_BYTES, RowCall, item_of
from .parts_op import alike, parts_of, problems_of

_LINE = 64  # elements: as in cluster.py
_MOST_BYTES = 256  # of a thread, of all rows
_MOST_SHARED = 192 * 1024  # bytes of a program; the rest is for what is told
SEVERAL_ROWS = 256  # fewer are faster one by one: there are more programs


@dataclass(frozen=True)
class ClusterConfig:
    """A program has at most BLOCK columns of each of its ROWS, and so many registers a thread. It
    takes them in PIECES, and tells the numbers of all its warps TOGETHER. For norms only: of
    pieces, weight and bias are loaded one AHEAD, or all of them into SHARED memory, so that
    registers have room for more rows."""

    BLOCK: int = 8192
    num_warps: int = 4
    registers: int = 80
    ROWS: int = 1
    PIECES: int = 1
    TOGETHER: bool = False
    AHEAD: bool = False
    SHARED: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ClusterOp(BestOp[ClusterConfig]):
    """On Hopper."""

    config_type = ClusterConfig
    architecture = 90

    def problems(self, config: ClusterConfig, call: RowCall) -> list[str]:
        for name, value in (("ROWS", config.ROWS), ("PIECES", config.PIECES)):
            if value not in (1, 2, 4, 8):
                return [f"{name} {value}: allowed are 1, 2, 4, 8"]
        found = problems_of(config, call, _MOST_BYTES // item_of(call) // config.ROWS)
        if not found and config.BLOCK % _LINE:
            found.append(f"BLOCK {config.BLOCK}: allowed are multiples of {_LINE}")
        if not found and not 2 <= (parts := parts_of(config, call)) <= MOST_BLOCKS:
            # A block without a cluster may not store to one.
            found.append(f"BLOCK {config.BLOCK}: {parts} parts, and clusters of 2 to {MOST_BLOCKS}")
        least = config.PIECES * 32 * config.num_warps * VECTOR_BYTES // item_of(call)
        if not found and least > config.BLOCK:
            found.append(f"PIECES {config.PIECES}: BLOCK {config.BLOCK} has fewer vectors a thread")
        if config.SHARED and (n := 2 * 4 * config.BLOCK) > _MOST_SHARED:
            found.append(f"SHARED: weight and bias have up to {n} bytes, of {_MOST_SHARED}")
        if config.SHARED and config.AHEAD:
            found.append("AHEAD, SHARED: allowed is one of them")
        if not 24 <= config.registers <= 255:
            found.append(f"registers {config.registers}: allowed are 24 to 255")
        if dict(call.switches).get("RESIDUAL"):
            found.append("RESIDUAL: the kernel adds none")
        return found

    def check_device(self, device: torch.device) -> None:
        check_hopper(device, "x", self.name)

    def is_faster(self, call: RowCall, x: torch.Tensor) -> bool:
        """Whether it is what computes x's rows by default. torch.compile cannot record Gluon."""
        if not self.space(call, self.architecture) or is_recorded(x):
            return False
        return x.device.type == "cuda" and torch.cuda.get_device_capability(x.device) == HOPPER

    def constants(self, config: ClusterConfig, call: RowCall) -> dict[str, Any]:
        constants = config.as_dict()
        parts = parts_of(config, call)
        return {
            **dict(call.switches), "ALIGN": call.align, "PARTS": parts,
            "FULL": call.columns == parts * config.BLOCK, "maxnreg": constants.pop("registers"),
            **constants,
        }  # fmt: skip

    def grid(self, config: ClusterConfig, call: RowCall, processors: int) -> Grid:
        return -(-call.rows // config.ROWS), 1, 1

    def cluster(self, config: ClusterConfig, call: RowCall) -> int:
        return parts_of(config, call)

    def launch(self, config: ClusterConfig, call: RowCall, tensors: Sequence[torch.Tensor]) -> None:
        if is_recorded(tensors[0]):
            raise NotImplementedError(f"{self.name}: torch.compile cannot record its clusters")
        self.check_device(tensors[0].device)
        arguments, options = self.arguments(config, call, tensors), self.options(config, call)
        with torch.cuda.device(tensors[0].device):
            kernel = self.kernel_for(config, call)
            make_clustered(kernel, arguments, options, self.cluster(config, call))
        super().launch(config, call, tensors)

    def code(self, config: ClusterConfig, call: RowCall) -> tuple[ClusterConfig, RowCall]:
        """Of the length only how many parts it has, and whether they are whole."""
        whole = parts_of(config, call) * config.BLOCK
        columns = whole - (0 if call.columns == whole else call.align)
        return config, alike(call, columns)
