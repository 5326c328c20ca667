"""The plain Triton kernel as an Op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..triton_kit.calls import AttentionOp, Problem
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

    def space(self, problem: Problem, architecture: int) -> list[Config]:
        return configs(problem.d_head, architecture)

    def problems(self, config: Config, problem: Problem) -> list[str]:
        return problems(config, problem.d_head)

    def arguments(self, config: Config, problem: Problem, tensors: Sequence[Any]) -> list[Any]:
        strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
        return [*tensors, *strides, *problem.sizes(config.BLOCK_M)]

    def constants(self, config: Config, problem: Problem) -> dict[str, Any]:
        return {**config.as_dict(), "D": problem.d_head, "CAUSAL": problem.causal}

    def grid(self, config: Config, problem: Problem, processors: int) -> Grid:
        return problem.tiles(config.BLOCK_M), 1, 1
