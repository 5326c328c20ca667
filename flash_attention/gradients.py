"""`backward`: the gradients of attention, with the kernels of one configuration."""

from collections.abc import Sequence

import torch

from flash_helpers.kernels.backward_args import ROW_STATS_FLOATS, row_stats_rows
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.contract import KernelConfig

from . import emulated
from .checks.backward_arguments import SHAPED_LIKE, make_backward_plan
from .checks.eager import require_eager
from .checks.kinds import require_tensor
from .checks.readable import writable_like
from .interface import kernel_id_of
from .library import load_library

Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


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
    inputs = {"q": q, "k": k, "v": v, "o": o, "d_o": d_o, "lse": lse}
    if d_lse is not None:
        inputs["d_lse"] = d_lse
    return gradients_of(kernel_cfg, inputs, softmax_scale, causal, wanted)


def gradients_of(
    kernel_cfg: KernelConfig,
    inputs: dict[str, torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
    wanted: Sequence[str],
) -> Gradients:
    """`backward`, of tensors by the names of the argument record."""
    if unknown := set(wanted) - {"q", "k", "v"}:
        raise ValueError(f"wanted names {sorted(unknown)}: expected some of 'q', 'k', 'v'")
    for name in ("q", *wanted):
        require_tensor(name, inputs[name])
    outputs = {
        name: writable_like(inputs[like]) for name, like in SHAPED_LIKE.items() if like in wanted
    }
    if outputs:
        launch(kernel_cfg, inputs, outputs, softmax_scale, causal)
    return outputs.get("d_q"), outputs.get("d_k"), outputs.get("d_v")


def launch(
    kernel_cfg: KernelConfig,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
    softmax_scale: float | None,
    causal: bool,
) -> None:
    """Checks everything, and launches; tensors by the names of the argument record."""
    q = inputs["q"]
    scratch = _scratch(kernel_cfg, q)
    tensors = inputs | outputs | scratch
    plan = make_backward_plan(kernel_cfg, tensors, softmax_scale, causal)
    if q.device.type == "cpu":
        emulated.launch_backward(plan, inputs, outputs | scratch)
        return
    device = q.device.index
    kernel_id = kernel_id_of(kernel_cfg, kernel_cfg.first_variant(), device)
    stream = torch.cuda.current_stream(device).cuda_stream
    load_library().launch_backward(kernel_id, plan.args, device, stream)


def _scratch(kernel_cfg: KernelConfig, q: torch.Tensor) -> dict[str, torch.Tensor]:
    """Uninitialised memory for what the kernels hand to each other; none for arguments that are
    refused."""
    if q.dim() != 4 or not isinstance(kernel_cfg, BackwardKernelConfig):
        return {}
    batch, seqlen_q, n_heads, d_head = q.shape
    columns = {"row_stats": ROW_STATS_FLOATS, "d_q_sums": d_head}
    rows = (batch, n_heads, row_stats_rows(seqlen_q))
    return {
        name: torch.empty((*rows, columns[name]), dtype=torch.float32, device=q.device)
        for name in kernel_cfg.scratch()
    }
