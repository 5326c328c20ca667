"""Checks the tensors of a backward pass and turns them into launch arguments."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flash_helpers.kernels.backward_args import GRADIENTS, INPUTS, STRIDED, pack_backward_args
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import KernelConfig

from .arguments import (
    check_config,
    check_lengths,
    check_lse,
    check_output_strides,
    check_shapes,
    check_tensor,
    strides_of,
)
from .kinds import check_switch
from .memory import check_aligned, check_no_overlap
from .scale import scale_or_default

# What each gradient is shaped like.
SHAPED_LIKE = {"d_q": "q", "d_k": "k", "d_v": "v"}


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """A checked launch of the kernels of a backward pass."""

    config: BackwardKernelConfig
    args: bytes
    sizes: Sizes


def make_backward_plan(
    config: KernelConfig,
    tensors: Mapping[str, torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
) -> BackwardPlan:
    """Checks everything. `tensors` are those of the argument record by name, those left out that it
    can do without, and its row_stats, which is ours. Raises TypeError or ValueError, naming the
    argument, what it is and what is allowed."""
    check_config(config, gradients=True)
    assert isinstance(config, BackwardKernelConfig)
    check_switch("causal", causal)
    q, k, v, o = (tensors[name] for name in INPUTS[:4])
    for name in STRIDED:
        if name in tensors:
            check_tensor(config, name, tensors[name], q)
    check_shapes(q, k, v, o)
    for name, like in {"d_o": "q", **SHAPED_LIKE}.items():
        _check_shape_like(tensors, name, like)
    for name in GRADIENTS:
        if name in tensors:
            check_output_strides(tensors[name], name)
    for name in ("lse", "d_lse"):
        if name in tensors:
            check_lse(tensors[name], q, name)
    batch, seqlen_q, n_heads_q, d_head = q.shape
    seqlen_k, n_heads_kv = k.shape[1], k.shape[2]
    check_lengths(seqlen_q, seqlen_k)
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    check_aligned({name: addresses[name] for name in STRIDED if name in tensors})
    outputs = {name: tensors[name] for name in GRADIENTS if name in tensors}
    check_no_overlap(outputs, {n: tensors[n] for n in tensors if n not in outputs})
    args = pack_backward_args(
        addresses, {name: strides_of(tensors[name]) for name in STRIDED if name in tensors},
        batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
        n_heads_q=n_heads_q, n_heads_kv=n_heads_kv,
        softmax_scale=scale_or_default(softmax_scale, d_head), causal=causal,
    )  # fmt: skip
    sizes = Sizes(batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, causal=causal)
    return BackwardPlan(config, args, sizes)


def _check_shape_like(tensors: Mapping[str, torch.Tensor], name: str, like: str) -> None:
    if name in tensors and tensors[name].shape != tensors[like].shape:
        shape, wanted = tuple(tensors[name].shape), tuple(tensors[like].shape)
        raise ValueError(f"{name} has shape {shape}, but {like} has {wanted}")
