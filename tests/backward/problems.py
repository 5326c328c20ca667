"""Problems for backward passes: inputs, what the forward pass leaves, and the gradients in fp64."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

import flash_attention
from flash_helpers.check.gradients import Gradients, attention_gradients
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernel_configs import DType
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm80_bwd.sets import get_ampere_backward_kernel_configs
from flash_helpers.kernels.sm80_bwd_fused.sets import get_ampere_fused_backward_kernel_configs
from flash_helpers.kernels.sm90_bwd.sets import get_hopper_backward_kernel_configs
from flash_helpers.kernels.sm90_bwd_cluster.sets import get_cluster_backward_kernel_configs
from flash_helpers.kernels.sm90_bwd_fused.sets import get_fused_backward_kernel_configs

CONFIGS: list[BackwardKernelConfig] = [
    *get_ampere_backward_kernel_configs(),
    *get_ampere_fused_backward_kernel_configs(),
    *get_hopper_backward_kernel_configs(),
    *get_fused_backward_kernel_configs(),
    *get_cluster_backward_kernel_configs(),
]
# The first of each family.
SMALLS = [
    next(c for c in CONFIGS if (c.FAMILY, c.dtype, c.d_head) == (family, DType.FP16, d_head))
    for family, d_head in (
        ("sm80_bwd", 64), ("sm80_bwd_fused", 64), ("sm90_bwd", 64), ("sm90_bwd_fused", 64),
        ("sm90_bwd_cluster", 192),
    )
]  # fmt: skip
SMALL = SMALLS[0]
WIDE = next(c for c in get_ampere_backward_kernel_configs() if c.d_head == 256)
NAMES = ("d_q", "d_k", "d_v")


@dataclass
class Problem:
    """One problem of a configuration's dtype and head dimension, with normally distributed inputs
    that a test may change before it asks for anything else."""

    config: BackwardKernelConfig
    seqlen_q: int
    seqlen_k: int
    heads: int = 2
    kv_heads: int = 1
    batch: int = 1
    causal: bool = False
    scale: float | None = None
    with_d_lse: bool = False
    seed: int = 0
    inputs: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        dtype = self.config.dtype.to_torch_dtype()
        of_queries = (self.batch, self.seqlen_q, self.heads, self.config.d_head)
        of_keys = (self.batch, self.seqlen_k, self.kv_heads, self.config.d_head)
        shapes = {"q": of_queries, "k": of_keys, "v": of_keys, "d_o": of_queries}
        self.inputs = {
            name: torch.randn(shape, generator=generator, dtype=dtype)
            for name, shape in shapes.items()
        }
        if self.with_d_lse:
            sizes = (self.batch, self.heads, self.seqlen_q)
            self.inputs["d_lse"] = torch.randn(sizes, generator=generator)

    @cached_property
    def outputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """o, rounded to the dtype, and lse in fp32."""
        q, k, v = (self.inputs[name] for name in "qkv")
        o, lse = attention_reference(q, k, v, self.scale, fp64=True, causal=self.causal)
        return o.to(q.dtype), lse.float()

    @cached_property
    def reference(self) -> Gradients:
        q, k, v, d_o = (self.inputs[name] for name in ("q", "k", "v", "d_o"))
        d_lse = self.inputs.get("d_lse")
        return attention_gradients(q, k, v, d_o, self.scale, d_lse=d_lse, causal=self.causal)

    def run(self, wanted: str = "qkv") -> dict[str, torch.Tensor]:
        """The gradients that the configuration's kernels compute, by name."""
        o, lse = self.outputs
        q, k, v, d_o = (self.inputs[name] for name in ("q", "k", "v", "d_o"))
        found = flash_attention.backward(
            self.config, d_o, q, k, v, o, lse, softmax_scale=self.scale, causal=self.causal,
            d_lse=self.inputs.get("d_lse"), wanted=tuple(wanted),
        )  # fmt: skip
        return {n: x for n, x in zip(NAMES, found, strict=True) if x is not None}

    def check(self) -> dict[str, torch.Tensor]:
        """The gradients, if they are right."""
        found = self.run()
        assert self.reference.problem_with(found) == ""
        return found
