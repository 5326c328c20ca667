"""The plain Triton kernel as an Op."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..triton_kit.calls import AttentionCall, AttentionOp
from ..triton_kit.op import Grid
from .config import HEAD_DIMS, configs, problems
from .config import TritonForwardConfig as Config


@dataclass(frozen=True)
class TritonAttention(AttentionOp[Config]):
    name = "triton"
    config_type = Config
    head_dims = HEAD_DIMS

    def kernel(self) -> Any:
        from .kernel import attention

        return attention

    def space(self, call: AttentionCall, architecture: int) -> list[Config]:
        return configs(call.d_head, architecture)

    def problems(self, config: Config, call: AttentionCall) -> list[str]:
        return problems(config, call.d_head)

    def arguments(self, config: Config, call: AttentionCall, tensors: Sequence[Any]) -> list[Any]:
        strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
        return [*tensors, *strides, *call.sizes(config.BLOCK_M)]

    def constants(self, config: Config, call: AttentionCall) -> dict[str, Any]:
        return {**config.as_dict(), "D": call.d_head, "CAUSAL": call.causal}

    def grid(self, config: Config, call: AttentionCall, processors: int) -> Grid:
        return call.tiles(config.BLOCK_M), 1, 1
