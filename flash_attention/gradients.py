"""`backward`: the gradients of attention, with the kernels of one configuration."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from flash_helpers.kernels.backward_args import POINTER_FIELDS, ROW_STATS_FLOATS
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import KernelConfig

from . import emulated
from .checks.backward_arguments import SHAPED_LIKE, make_backward_plan
from .checks.eager import require_eager
from .checks.kinds import require_tensor
from .checks.readable import writable_like
from .interface import exchange_api, kernel_id_of
from .library import load_library

Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
_NAMES = frozenset("qkv")


class Inputs(NamedTuple):
    """What is read, in the order of the argument record."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    d_o: torch.Tensor
    lse: torch.Tensor
    d_lse: torch.Tensor | None


def backward(
    kernel_cfg: KernelConfig,
    d_o: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    d_lse: torch.Tensor | None = None,
    wanted: Sequence[str] = ("q", "k", "v"),
) -> Gradients:
    """The gradients of what `forward` computes, with the kernels of one configuration.

    Args:
        kernel_cfg: the kernels, of any valid configuration that has GRADIENTS; those that are not
            in the build are compiled on first use, as in `forward`.
        d_o: the gradient of o, shaped like it. Strides and alignment of all tensors as in
            `forward`; dimensions may be expanded (stride 0), but for the last.
        q, k, v, softmax_scale, causal: what `forward` was called with.
        o, lse: what it wrote.
        d_lse: the gradient of lse, shaped like it, fp32, contiguous; None: 0.
        wanted: of which inputs the gradient is computed: some of "q", "k", "v".

    Returns:
        (d_q, d_k, d_v), shaped like q, k and v; None for those that are not wanted. They are summed
        in fp32, also over the query heads that share a KV head, and rounded once. A query that
        sees no key contributes to nothing, and its own gradient is 0.

    Raises:
        What `forward` raises.
    """
    require_eager()
    inputs = Inputs(q, k, v, o, d_o, lse, d_lse)
    return gradients_of(kernel_cfg, inputs, softmax_scale, causal, wanted)


def gradients_of(
    kernel_cfg: KernelConfig,
    inputs: Inputs,
    softmax_scale: float | None,
    causal: bool,
    wanted: Sequence[str],
) -> Gradients:
    """`backward`, with its tensors in one."""
    if unknown := set(wanted) - _NAMES:
        raise ValueError(f"wanted names {sorted(unknown)}: expected some of 'q', 'k', 'v'")
    given = inputs._asdict()
    if inputs.d_lse is None:
        del given["d_lse"]
    for name, x in given.items():
        require_tensor(name, x)
    found = launch_again(kernel_cfg, inputs, softmax_scale, causal, wanted)
    if found is not None:
        return found
    outputs = {
        name: writable_like(given[like]) for name, like in SHAPED_LIKE.items() if like in wanted
    }
    if outputs:
        launch_checked(kernel_cfg, given, outputs, softmax_scale, causal)
    return outputs.get("d_q"), outputs.get("d_k"), outputs.get("d_v")


def launch_again(
    kernel_cfg: KernelConfig,
    inputs: Inputs,
    softmax_scale: float | None,
    causal: bool,
    wanted: Sequence[str],
) -> Gradients | None:
    """The gradients by a launch like one that `launch_checked` remembered for this very
    `kernel_cfg`; None if there is none, and nothing was done."""
    q, k, v, o, d_o, _, _ = inputs
    cache = launch_cache() if q.is_cuda else None
    # It does not see that the memory of a view has the other sign.
    if cache is None or q.is_neg() or k.is_neg() or v.is_neg() or o.is_neg() or d_o.is_neg():
        return None
    d_q = torch.empty_like(q) if "q" in wanted else None
    d_k = torch.empty_like(k) if "k" in wanted else None
    d_v = torch.empty_like(v) if "v" in wanted else None
    tensors = (*inputs, d_q, d_k, d_v, *_scratch(kernel_cfg, q, k, causal))
    again = cache.again(kernel_cfg, *tensors, softmax_scale, causal, torch.is_grad_enabled())
    return (d_q, d_k, d_v) if again else None


def launch_checked(
    kernel_cfg: KernelConfig,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
) -> None:
    """Checks everything, launches, and lets later calls of the same kind skip the checks; tensors
    by the names of the argument record."""
    q = inputs["q"]
    made = zip(_SCRATCH, _scratch(kernel_cfg, q, inputs["k"], causal), strict=True)
    scratch = {name: x for name, x in made if x is not None}
    tensors = inputs | outputs | scratch
    plan = make_backward_plan(kernel_cfg, tensors, softmax_scale, causal)
    if q.device.type == "cpu":
        emulated.launch_backward(plan, inputs, outputs | scratch)
        return
    device = q.device.index
    kernel_id = kernel_id_of(kernel_cfg, kernel_cfg.first_variant(), device)
    stream = torch.cuda.current_stream(device).cuda_stream
    load_library().launch_backward(kernel_id, plan.args, device, stream)
    cache = launch_cache()
    if cache is not None:
        objects = map(tensors.get, POINTER_FIELDS)
        cache.remember(kernel_cfg, *objects, softmax_scale, causal, kernel_id, plan.args)


@cache
def launch_cache() -> Any:
    """The extension's cache of checked backward passes; None where torch is older than 2.10 and
    every call is checked in full."""
    api = exchange_api()
    return load_library().BackwardLaunchCache(torch.Tensor, api) if api else None


_SCRATCH = ("row_stats", "d_q_sums")


def _scratch(
    kernel_cfg: KernelConfig, q: torch.Tensor, k: torch.Tensor, causal: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Uninitialised memory for what the kernels hand to each other; none for arguments that are
    refused."""
    if not isinstance(kernel_cfg, BackwardKernelConfig) or not _has_heads(q, k):
        return None, None
    shapes = scratch_shapes(kernel_cfg, q.shape, k.shape, causal is True)  # else refused
    row_stats, d_q_sums = (
        torch.empty(shapes[name], dtype=torch.float32, device=q.device) if name in shapes else None
        for name in _SCRATCH
    )
    return row_stats, d_q_sums


def _has_heads(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether k's heads can be shared out among q's."""
    return q.dim() == k.dim() == 4 and k.shape[2] > 0 and q.shape[2] % k.shape[2] == 0


def scratch_shapes(
    kernel_cfg: KernelConfig, q_shape: Sequence[int], k_shape: Sequence[int], causal: bool
) -> dict[str, tuple[int, int, int, int]]:
    """Of the fp32 memory for what the kernels of a backward pass hand to each other, by the names
    of the argument record."""
    assert isinstance(kernel_cfg, BackwardKernelConfig)
    batch, seqlen_q, n_heads, _ = q_shape
    sizes = Sizes(batch, seqlen_q, k_shape[1], n_heads, k_shape[2], causal=causal)
    rows = kernel_cfg.stats_rows(sizes)
    shapes = {
        "row_stats": (batch, n_heads, rows, ROW_STATS_FLOATS),
        "d_q_sums": kernel_cfg.sums_shape(sizes),
    }
    return {name: shapes[name] for name in kernel_cfg.scratch()}
