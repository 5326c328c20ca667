"""The gradients of a serving call: packed or padded sequences, windows, soft caps and sinks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.backward_args import (
    ROW_STATS_FLOATS,
    STRIDED,
    pack_backward_args,
)
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.problem import AttentionProblem

from .. import emulated
from ..checks.arguments import strides_of
from ..checks.backward_arguments import BackwardPlan
from ..checks.readable import filled_up, readable
from ..interface import kernel_id_of
from ..library import load_library
from . import fitting
from .options import Options
from .tensors import as_batch


@dataclass(frozen=True)
class Rule:
    """What a call was made with, beside its queries, keys and values."""

    options: Options
    lengths: Mapping[str, torch.Tensor]  # cu_seqlens and seqused, by the names of the record
    deterministic: bool = False  # every gradient has the same bits in every run

    @property
    def packed(self) -> bool:
        return "cu_seqlens_q" in self.lengths


class Saved(NamedTuple):
    """What the forward pass leaves; packed, or batches of equal lengths."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    lse: torch.Tensor
    sinks: torch.Tensor | None


Gradients = list[torch.Tensor | None]


def require_kernels(q: torch.Tensor, rule: Rule, *, sinks: bool) -> None:
    """Raises ValueError, or KernelNotBuiltError, where no kernel could compute gradients. Asked
    before the forward pass: hours may lie between."""
    config = choose(q, rule, sinks=sinks)
    if q.device.type != "cpu":
        kernel_id_of(config, config.first_variant(), q.device.index)


def choose(q: torch.Tensor, rule: Rule, *, sinks: bool) -> BackwardKernelConfig:
    """A sequence whose output has the same bits in every batch has gradients that have, too."""
    options = rule.options
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), 1, 1, 1, q.shape[-2], q.shape[-2], q.shape[-1],
        deterministic=rule.deterministic or bool(options.num_splits),
    )  # fmt: skip
    beside = [what for what, there in (("softcap", options.softcap), ("sinks", sinks)) if there]
    mean_rows = q.shape[0] / max(_n_sequences(q, rule), 1) if rule.packed else math.inf
    return smallest(problem, q.device, beside, mean_rows)


def smallest(
    problem: AttentionProblem,
    device: torch.device,
    beside: Sequence[str] = (),
    mean_rows: float = math.inf,
) -> BackwardKernelConfig:
    """The configuration of the smallest head dimension that holds the problem's. `beside`: what the
    call has more; `mean_rows`: queries of an average sequence. Raises KernelNotBuiltError."""
    return fitting.best(
        BackwardKernelConfig,  # type: ignore[type-abstract]
        problem,
        device,
        cost=attrgetter("d_head"),
        refusal=lambda config: config.refusal(beside, mean_rows),
    )


def gradients(
    saved: Saved,
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    rule: Rule,
    wanted: tuple[bool, ...],
) -> Gradients:
    """Of q, k, v and the sinks, those that are wanted. Rows of no sequence have gradients of 0."""
    q, k, v, o, lse, sinks = saved
    d_o = torch.zeros_like(o) if d_o is None else d_o
    outputs: dict[str, torch.Tensor] = {}
    row_stats = None
    if q.numel() and (d_o.numel() or d_lse is not None) and _n_sequences(q, rule):
        config = choose(q, rule, sinks=sinks is not None)
        inputs = {
            name: readable(_laid_out(as_batch(x), config))
            for name, x in (("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o))
        }
        inputs["lse"] = lse.contiguous()
        if d_lse is not None:
            inputs["d_lse"] = d_lse.contiguous()
        outputs = {
            f"d_{name}": torch.zeros_like(inputs[name], memory_format=torch.contiguous_format)
            for name, asked in zip("qkv", wanted, strict=False)
            if asked
        }
        row_stats = _launch(config, inputs, outputs, rule)
    found: Gradients = [
        _cut(outputs.get(f"d_{name}"), x) if asked else None
        for name, x, asked in zip("qkv", (q, k, v), wanted, strict=False)
    ]
    return [*found, _of_sinks(sinks, q, row_stats, rule) if wanted[3] else None]


def _launch(
    config: BackwardKernelConfig,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
    rule: Rule,
) -> torch.Tensor:
    """Writes `outputs`; the RowStats of all heads, log2 of the sum of exponentials in front."""
    q, k = inputs["q"], inputs["k"]
    sizes = Sizes(_n_sequences(q, rule), q.shape[1], k.shape[1], q.shape[2], k.shape[2],
                  packed=rule.packed)  # fmt: skip
    scratch = {
        name: torch.empty(
            (q.shape[0], q.shape[2], config.stats_rows(sizes), columns),
            dtype=torch.float32,
            device=q.device,
        )
        for name, columns in (("row_stats", ROW_STATS_FLOATS), ("d_q_sums", config.sums_columns()))
        if name in config.scratch()
    }
    tensors = inputs | outputs
    options = rule.options
    addresses = tensors | scratch
    args = pack_backward_args(
        {name: x.data_ptr() for name, x in addresses.items()},
        {name: strides_of(tensors[name]) for name in STRIDED if name in tensors},
        batch=sizes.batch, seqlen_q=sizes.seqlen_q, seqlen_k=sizes.seqlen_k,
        n_heads_q=sizes.n_heads_q, n_heads_kv=sizes.n_heads_kv, softmax_scale=options.scale,
        served={name: x.data_ptr() for name, x in rule.lengths.items()}
        | {"window_left": options.left, "window_right": options.right, "softcap": options.softcap},
    )  # fmt: skip
    device = q.device
    if device.type == "cpu":
        emulated.launch_backward(
            BackwardPlan(config, args, sizes), {**inputs, **rule.lengths},
            outputs | scratch,
        )  # fmt: skip
    else:
        kernel_id = kernel_id_of(config, config.first_variant(), device.index)
        stream = torch.cuda.current_stream(device).cuda_stream
        load_library().launch_backward(kernel_id, args, device.index, stream)
    return scratch["row_stats"]


def _of_sinks(
    sinks: torch.Tensor | None, q: torch.Tensor, row_stats: torch.Tensor | None, rule: Rule
) -> torch.Tensor | None:
    """A sink is one more key, whose value is 0: the sum over its queries of what its weight loses
    to the others."""
    if sinks is None or row_stats is None:
        return None if sinks is None else torch.zeros_like(sinks)
    n_rows = q.shape[-3]
    lse_log2, dots = row_stats[:, :, :n_rows].unbind(-1)
    weights = torch.exp2(sinks.float()[:, None] / math.log(2) - lse_log2)
    of_rows = weights * -dots
    if rule.packed:
        of_rows = of_rows.masked_fill(~_is_row(n_rows, rule.lengths), 0.0)
    return of_rows.sum(dim=(0, 2)).to(sinks.dtype)


def _is_row(n_rows: int, lengths: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Which rows of a packed q are of some sequence."""
    starts, ends = lengths["cu_seqlens_q"][:-1], lengths["cu_seqlens_q"][1:]
    if "seqused_q" in lengths:
        ends = torch.minimum(ends, starts + lengths["seqused_q"])
    rows = torch.arange(n_rows, device=starts.device, dtype=starts.dtype)
    number = torch.searchsorted(starts.contiguous(), rows, right=True) - 1
    return (number >= 0) & (rows < ends[number.clamp(min=0)])


def _n_sequences(q: torch.Tensor, rule: Rule) -> int:
    return len(rule.lengths["cu_seqlens_q"]) - 1 if rule.packed else q.shape[0]


def _laid_out(x: torch.Tensor, config: BackwardKernelConfig) -> torch.Tensor:
    """With zeros behind each head as far as the kernels' heads are longer, and in a copy where they
    need the heads behind each other."""
    if x.shape[-1] < config.d_head:
        return filled_up(x, config.d_head)
    apart = x.shape[-2] > 1 and x.stride(-2) != x.shape[-1]
    return x.contiguous() if apart and config.needs_heads_together() else x


def _cut(gradient: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Without what was filled up; 0 where nothing was computed."""
    if gradient is None:
        return torch.zeros_like(like)
    return gradient[..., : like.shape[-1]].reshape(like.shape)
