"""The warp-specialised kernels as Ops: WS, and WS PP, which takes turns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..triton_kit.calls import AttentionCall, AttentionOp
from ..triton_kit.op import Grid
from .config import HEAD_DIMS, configs, default_config, problems
from .config import GluonForwardConfig as Config

_HOPPER = (9, 0)


@dataclass(frozen=True)
class GluonAttention(AttentionOp[Config]):
    ping_pong: bool
    config_type = Config
    head_dims = HEAD_DIMS
    architecture = 90
    contiguous = False  # strides are part of a descriptor, not of the code
    needs_keys = True  # TMA has no empty tensors

    @property
    def name(self) -> str:  # type: ignore[override]
        return "gluon-ws-pp" if self.ping_pong else "gluon-ws"

    def kernel(self) -> Any:
        from .kernel import attention

        return attention

    def space(self, call: AttentionCall, architecture: int) -> list[Config]:
        return configs(self.ping_pong, call.d_head)

    def default(self, call: AttentionCall) -> Config:
        return default_config(self.ping_pong, call.d_head)

    def problems(self, config: Config, call: AttentionCall) -> list[str]:
        return problems(config, call.d_head, self.ping_pong)

    def checked(self, config: Config | None, call: AttentionCall) -> Config:
        if not isinstance(self.ping_pong, bool):
            raise TypeError(
                f"ping_pong is a {type(self.ping_pong).__name__}: expected True or False"
            )
        return super().checked(config, call)

    def code(self, config: Config, call: AttentionCall) -> tuple[Config, AttentionCall]:
        return super().code(replace(config, PERSISTENT=False), call)

    def arguments(self, config: Config, call: AttentionCall, tensors: Sequence[Any]) -> list[Any]:
        rows = config.BLOCK_M // config.NUM_MMA_GROUPS
        boxes = (rows, config.BLOCK_N, config.BLOCK_N, rows)
        described = [_descriptor(tensor, n) for tensor, n in zip(tensors, boxes, strict=True)]
        return [*described, *call.sizes(config.BLOCK_M)]

    def constants(self, config: Config, call: AttentionCall) -> dict[str, Any]:
        return {
            "BLOCK_M": config.BLOCK_M, "NUM_BUFFERS": config.NUM_BUFFERS,
            "NUM_MMA_GROUPS": config.NUM_MMA_GROUPS, "GROUP_WARPS": config.num_warps,
            "MMA_REGS": config.mma_regs, "CAUSAL": call.causal, "PING_PONG": self.ping_pong,
            "FENCE": config.OVERLAP_FENCE if self.ping_pong else "none",
            "OPTIMISTIC": config.OPTIMISTIC and self.ping_pong, "num_warps": config.num_warps,
        }  # fmt: skip

    def grid(self, config: Config, call: AttentionCall, processors: int) -> Grid:
        tiles = call.tiles(config.BLOCK_M)
        return min(tiles, processors) if config.PERSISTENT else tiles, 1, 1

    def check_device(self, device: torch.device) -> None:
        """Raises ValueError for a GPU that is no Hopper."""
        found = torch.cuda.get_device_capability(device)
        if found != _HOPPER:
            name = torch.cuda.get_device_name(device)
            raise ValueError(
                f"{name} has compute capability {found[0]}.{found[1]}: "
                "the Gluon kernels need 9.0 (Hopper); flash_attention.triton runs on any GPU"
            )


def _descriptor(tensor: Any, rows: int) -> Any:
    """A (batch, seq, heads, d) tensor as TMA sees it: boxes of `rows` rows of one head."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    batch, seq, heads, d_head = tensor.shape
    by_batch, by_row, by_head, _ = (
        # The stride of a dimension of one element is never used, but TMA checks it.
        d_head if n == 1 else s
        for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )
    box = [1, 1, rows, d_head]
    dtype = getattr(gl, str(tensor.dtype).removeprefix("torch."))
    layout = gl.NVMMASharedLayout.get_default_for(box, dtype)
    return TensorDescriptor(
        tensor, [batch, heads, seq, d_head], [by_batch, by_head, by_row, 1], box, layout
    )
