"""A checked serving call: which kernels, how many splits, the argument record, the launch."""

from dataclasses import dataclass, field, replace
from functools import partial

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.forward_args import MAX_SEQLEN
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.serve_args import pack_serve_args
from flash_helpers.kernels.serve_config import (
    CUT_HEADS,
    FEW_KEYS,
    MOST_UNITS,
    PAIR_HEADS,
    SMALLEST_TILE,
    ServeKernelConfig,
    ServeSizes,
)

from .. import emulated
from ..checks.arguments import strides_of
from ..interface import kernel_id_of
from ..library import load_library
from . import fitting, scratch, short_way
from .options import Options
from .splits import with_splits
from .tensors import as_batch

# Queries of the average sequence, up to which its keys are nearly all of the work.
_MOST_DECODED = 16
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Call:
    """Checked tensors by the names of the argument record; q and o may be packed."""

    tensors: dict[str, torch.Tensor]
    options: Options
    batch: int
    max_keys: int  # that a sequence can have, or that there are
    page_size: int = 0
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)  # o, and lse if it is wanted
    appended: dict[str, int] = field(default_factory=dict)  # numbers of the record (append.py)
    given: short_way.Given = ()  # what is remembered for the short way; empty: nothing

    @property
    def q(self) -> torch.Tensor:
        return self.tensors["q"]

    @property
    def latent(self) -> torch.Tensor | None:
        """Of MLA: the queries' elements for those of a key that are its value."""
        return self.tensors.get("qv")

    @property
    def d_head(self) -> int:
        """Elements of a key: with `latent` those of k and v."""
        return self.q.shape[-1] + (0 if self.latent is None else self.latent.shape[-1])

    def sizes(self, n_splits: int = 1) -> ServeSizes:
        packed = self.q.dim() == 3
        n_rows = self.q.shape[0] if packed else self.q.shape[0] * self.q.shape[1]
        return ServeSizes(
            batch=self.batch,
            n_rows=n_rows,
            seqlen_q=0 if packed else self.q.shape[1],
            n_heads_q=self.q.shape[-2],
            n_heads_kv=self.tensors["k"].shape[-2],
            n_splits=n_splits,
            is_fixed=self.options.num_splits > 0,
            n_new=self.appended.get("n_new", 0),
            rotates="rotary_dim" in self.appended,
            d_head=self.d_head,
            d_v=self.tensors["v"].shape[-1],
            paged=self._is_paged(),
            page_size=self.page_size,
            window=self.options.n_window_keys(),
        )

    def keys_each(self) -> int:
        """That a sequence can have: of packed keys, the average."""
        packed = "cu_seqlens_k" in self.tensors and not self.page_size
        return self.max_keys // self.batch if packed else self.max_keys

    def _is_paged(self) -> bool:
        of_cache = "block_table" in self.tensors or "cache_batch_idx" in self.tensors
        return of_cache or ("cu_seqlens_k" in self.tensors and self.tensors["k"].shape[0] > 1)

    def record(self, n_splits: int) -> bytes:
        """The argument record."""
        tensors = self.tensors | self.outputs
        sizes, options = self.sizes(n_splits), self.options
        values: dict[str, int | float] = {name: x.data_ptr() for name, x in tensors.items()}
        for name, first in (
            ("q", "batch"), ("qv", "batch"), ("k", "page"), ("v", "page"), ("o", "batch"),
            ("q_new", "batch"), ("k_new", "batch"), ("v_new", "batch"),
        ):  # fmt: skip
            if name not in tensors:
                continue
            strides = strides_of(as_batch(tensors[name]))
            for axis, stride in zip((first, "seq", "head"), strides, strict=True):
                values[f"{name}_stride_{axis}"] = stride
        if "lse" in tensors:
            lse = tensors["lse"]
            values["lse_stride_head"] = lse.stride(-2)
            values["lse_stride_batch"] = lse.stride(0) if lse.dim() == 3 else 0
        if "block_table" in tensors:
            values["table_stride"] = tensors["block_table"].stride(0)
        return pack_serve_args(
            values | self.appended | {
                "batch": sizes.batch, "n_rows": sizes.n_rows, "seqlen_q": sizes.seqlen_q,
                "seqlen_k": min(self.max_keys, MAX_SEQLEN), "page_size": self.page_size,
                "n_heads_q": sizes.n_heads_q, "n_heads_kv": sizes.n_heads_kv,
                "d_head": self.q.shape[-1], "d_v": tensors["v"].shape[-1],
                "n_splits": n_splits, "window_left": options.left, "window_right": options.right,
                "softmax_scale": options.scale, "softcap": options.softcap,
            }
        )  # fmt: skip


def launch(call: Call) -> None:
    """Queues the kernels of a call on the current stream; nothing waits. Raises ValueError where no
    family takes it, KernelNotBuiltError, and what a launch raises."""
    config = choose(call)
    sizes = with_splits(
        config, call.sizes(), call.options.num_splits, call.keys_each(), call.q.device
    )
    grids = (config.grid(variant, sizes) for variant in config.variants())
    most = max(*grids, sizes.n_rows * sizes.n_heads_q)
    if most > _MAX_INT32:
        raise ValueError(f"the call has {most} rows or tiles: at most {_MAX_INT32} are possible")
    words = config.scratch(sizes)
    memory = scratch.memory(words, call.q.device)
    whole = replace(call, outputs=call.outputs | memory)
    record = whole.record(sizes.n_splits)
    device = call.q.device
    if device.type == "cpu":
        emulated.launch_serving(config, record, sizes, call.tensors, whole.outputs)
        return
    kernel_id = kernel_id_of(config, config.first_variant(), device.index)
    stream = torch.cuda.current_stream(device).cuda_stream
    load_library().launch_serving(kernel_id, record, device.index, stream)
    # The short way leaves calls of more to this one, too.
    if call.given and sizes.most_units(call.max_keys) <= MOST_UNITS:
        short_way.remember(
            call.given, kernel_id, record, memory,
            keeps_memory=scratch.is_kept(words), by_sizes=config.splits_by_sizes(sizes),
        )  # fmt: skip


def choose(call: Call) -> ServeKernelConfig:
    """The configuration with the fewest idle rows in its tiles: a matter of the tensors' shapes,
    and not of the lengths, which only the device knows."""
    return fitting_sizes(
        call.sizes(), DType.from_torch_dtype(call.q.dtype), call.max_keys, call.q.device,
        is_latent=call.latent is not None,
    )  # fmt: skip


def fitting_sizes(
    sizes: ServeSizes, dtype: DType, max_keys: int, device: torch.device, *, is_latent: bool = False
) -> ServeKernelConfig:
    """What `choose` does, of a call of these sizes. Raises KernelNotBuiltError."""
    problem = AttentionProblem(
        dtype, max(sizes.batch, 1), max(sizes.n_rows, 1), max_keys, sizes.n_heads_q,
        sizes.n_heads_kv, sizes.d_head, d_v=sizes.d_v if is_latent else 0,
    )  # fmt: skip
    return fitting.best(
        ServeKernelConfig,  # type: ignore[type-abstract]
        problem,
        device,
        cost=partial(_cost, sizes, max_keys, is_latent),
        refusal=partial(_refusal, sizes, max_keys),
    )


def _in_two_tiles(rows: int) -> int:
    """Rows of a tile, where two of the smallest hold them. Of few tiles many thread blocks have a
    part each, and it takes longer to merge many large parts than to read few keys twice."""
    return SMALLEST_TILE if SMALLEST_TILE < rows <= 2 * SMALLEST_TILE else rows


def _refusal(sizes: ServeSizes, max_keys: int, config: ServeKernelConfig) -> str | None:
    if sizes.is_fixed and not config.can_split():
        return "its kernels do not split keys"
    if config.shares(sizes) and sizes.most_units(max_keys) > MOST_UNITS:
        return "its kernels cannot count so many queries and keys"
    return config.refusal(sizes)


def _cost(
    sizes: ServeSizes, max_keys: int, is_latent: bool, config: ServeKernelConfig
) -> tuple[int, bool, bool, int, int]:
    """Of the smallest head dimension, whether the kernel is of the right kind; the smallest tile
    that holds the rows of the average sequence, else the largest; the most shared memory, of a
    thread block or, with many tiles, of all that a multiprocessor holds.

    Where the result must not depend on the batch, neither may the kernel."""
    shares = not sizes.is_fixed and sizes.n_rows <= _MOST_DECODED * sizes.batch
    rows = config.rows(sizes)
    if sizes.is_fixed:
        rows = sizes.n_heads_q // sizes.n_heads_kv if is_latent else _MAX_INT32
    heads = sizes.batch * sizes.n_heads_kv
    if shares and not is_latent and heads <= CUT_HEADS and max_keys <= FEW_KEYS:
        rows = _in_two_tiles(rows)
    tile = config.blocks()[0]
    blocks = config.min_blocks_per_sm() if shares and heads >= PAIR_HEADS else 1
    return (config.d_head, config.shares_keys() != shares, tile < rows,
            tile if tile >= rows else -tile, -config.smem_bytes() * blocks)  # fmt: skip
