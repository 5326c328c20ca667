"""Checks the tensors of a call and turns them into launch arguments."""

import struct
from dataclasses import dataclass

import torch

from flash_helpers.base.words import kind_of
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.forward_args import MAX_SEQLEN, POINTER_FIELDS, pack_forward_args
from flash_helpers.kernels.registry import violations

from .eager import check_plain
from .kinds import check_d_head, check_dense, check_device, check_sign, check_switch, require_tensor
from .memory import ALIGNMENT_BYTES, ALIGNMENT_ELEMENTS, check_aligned, check_no_overlap
from .scale import scale_or_default

_pack_pointers = struct.Struct(f"<{len(POINTER_FIELDS)}Q").pack
_POINTER_BYTES = 8 * len(POINTER_FIELDS)
_MAX_INT32 = 2**31 - 1

# What works in place of a call that is refused.
_NO_BATCH = "; without a batch, call .unsqueeze(0)"


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked launch, without the addresses."""

    config: KernelConfig
    tail: bytes  # the argument record behind the pointers
    grid: int  # thread blocks
    variant: Variant  # of the configuration's kernels, the one that the problem needs

    def args(self, q: int, k: int, v: int, o: int, lse: int) -> bytes:
        """The argument record. Raises ValueError for a pointer that is not 16-byte aligned."""
        # Not (q | k | v | o): torch.compile of torch 2.4 has no | of numbers that may change.
        if q % ALIGNMENT_BYTES or k % ALIGNMENT_BYTES or v % ALIGNMENT_BYTES or o % ALIGNMENT_BYTES:
            check_aligned({"q": q, "k": k, "v": v, "o": o})
        return _pack_pointers(q, k, v, o, lse) + self.tail


def make_plan(
    config: KernelConfig,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool = False,
) -> Plan:
    """Checks everything but addresses. Raises TypeError or ValueError, naming the argument, what it
    is and what is allowed."""
    check_config(config)
    check_switch("causal", causal)
    tensors = {"q": q, "k": k, "v": v, "o": o}
    for name, tensor in tensors.items():
        check_tensor(config, name, tensor, q)
    check_shapes(q, k, v, o)
    check_output_strides(o)
    if lse is not None:
        check_lse(lse, q)
    batch, seqlen_q, n_heads_q, d_head = q.shape
    seqlen_k, n_heads_kv = k.shape[1], k.shape[2]
    check_lengths(seqlen_q, seqlen_k)
    grid = -(-seqlen_q // config.blocks()[0]) * n_heads_q * batch
    if max(grid, n_heads_q, batch) > _MAX_INT32:
        raise ValueError(
            f"the problem needs {grid} thread blocks: at most {_MAX_INT32} are possible"
        )
    args = pack_forward_args(
        q=0, k=0, v=0, o=0, lse=0,
        q_strides=strides_of(q), k_strides=strides_of(k), v_strides=strides_of(v),
        o_strides=strides_of(o),
        batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
        n_heads_q=n_heads_q, n_heads_kv=n_heads_kv,
        softmax_scale=scale_or_default(softmax_scale, d_head),
        causal=causal,
    )  # fmt: skip
    variant = config.variant_for(seqlen_q, seqlen_k, causal)
    return Plan(config=config, tail=args[_POINTER_BYTES:], grid=grid, variant=variant)


def check_operands(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
) -> None:
    """Checks what does not depend on a kernel, nor on where the tensors lie. Raises TypeError or
    ValueError, naming the argument."""
    check_call(q, k, v, softmax_scale, causal)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_plain(name, tensor)
        check_no_gradient(name, tensor)


def check_call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
) -> None:
    """The part of `check_operands` that needs no memory: tensors may be fake."""
    check_switch("causal", causal)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_kind(name, tensor, q)
        if tensor.dtype != q.dtype:
            raise ValueError(
                f"{name} has dtype {tensor.dtype}, but q has {q.dtype}: cast with .to({q.dtype})"
            )
        check_d_head(name, tensor.shape[3], q.shape[3])
    check_shapes(q, k, v, q)
    scale_or_default(softmax_scale, q.shape[3])


def check_lengths(seqlen_q: int, seqlen_k: int) -> None:
    """Raises ValueError for more rows than the kernels can count."""
    if max(seqlen_q, seqlen_k) > MAX_SEQLEN:
        raise ValueError(
            f"sequences of {seqlen_q} and {seqlen_k} rows: at most {MAX_SEQLEN} are possible; "
            "split q, or split k and v and add the outputs up, weighted by softmax_lse"
        )


def strides_of(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Batch, sequence and head; 0 for a dimension of at most one element, whose stride is never
    used."""
    batch, seq, head = (
        0 if n <= 1 else s for n, s in zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
    )
    return batch, seq, head


def check_config(config: KernelConfig, *, gradients: bool = False) -> None:
    """Raises TypeError or ValueError for what is no configuration that can be built, or not one of
    the pass that is asked for."""
    if not isinstance(config, KernelConfig):
        raise TypeError(
            f"kernel_cfg is {kind_of(config)}: expected a KernelConfig "
            "(flash_helpers.kernel_configs.parse_kernel_name_into_config makes one from a string)"
        )
    if config.SERVES:
        raise ValueError(
            f"kernel_cfg is {config.short_form()}, kernels that flash_attn_varlen_func and "
            "flash_attn_with_kvcache choose themselves: take one of those of "
            "flash_attention.available_kernels() whose SERVES is False"
        )
    if config.GRADIENTS is not gradients:
        has, other = ("a backward", "forward") if config.GRADIENTS else ("a forward", "backward")
        raise ValueError(
            f"kernel_cfg is {config.short_form()}, the kernels of {has} pass: for a {other} pass, "
            f"take one of those of flash_attention.available_kernels() whose GRADIENTS is "
            f"{gradients}"
        )
    reasons = violations(config)
    if reasons:
        raise ValueError(f"{config.short_form()} cannot be built: {' '.join(reasons)}")


def _check_kind(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    """A dense tensor of four dimensions on the device of q."""
    require_tensor(name, tensor)  # q comes first: it has a device
    check_dense(name, tensor)
    check_device(name, q.device)
    if tensor.device != q.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but q is on {q.device}: move it with "
            f".to({str(q.device)!r})"
        )
    if tensor.dim() != 4:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}: expected 4 dimensions "
            f"(batch, seq, heads, d_head){_NO_BATCH if tensor.dim() == 3 else ''}"
        )


def check_tensor(config: KernelConfig, name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    """What a kernel can read or write."""
    _check_kind(name, tensor, q)
    check_plain(name, tensor)
    expected = config.dtype.to_torch_dtype()
    if tensor.dtype != expected:
        raise ValueError(f"{name} has dtype {tensor.dtype}: kernel_cfg is for {expected}")
    if tensor.shape[3] != config.d_head:
        raise ValueError(
            f"{name} has head dimension {tensor.shape[3]}: kernel_cfg is for {config.d_head}"
        )
    check_layout(name, tensor)
    check_no_gradient(name, tensor)


def check_layout(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor (batch, seq, heads, d) that no kernel here can read or write:
    empty (k and v may have no rows), not contiguous in its last dimension, other strides that are
    no multiples of 16 bytes, or a negated view."""
    may_be_empty = name in ("k", "v", "d_k", "d_v")  # no keys: every row sees nothing
    if 0 in (tensor.shape[0], *tensor.shape[1 + may_be_empty :]):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: empty tensors are not supported")
    if tensor.stride(3) != 1:
        raise ValueError(
            f"{name} has stride {tensor.stride(3)} in its last dimension: it must be contiguous "
            "(stride 1); call .contiguous()"
        )
    if any(s % ALIGNMENT_ELEMENTS for s in strides_of(tensor)):
        raise ValueError(
            f"{name} has strides {tuple(tensor.stride())}: all but the last must be multiples of "
            f"{ALIGNMENT_ELEMENTS} elements ({ALIGNMENT_BYTES} bytes); call .contiguous()"
        )
    check_sign(name, tensor)


def check_no_gradient(name: str, tensor: torch.Tensor) -> None:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires a gradient, but this call has no backward pass: flash_attn_func has "
            "one; else call under torch.no_grad(), or pass a detached tensor"
        )


def check_shapes(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
) -> None:
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}: they must be equal, but for the "
            "head dimension"
        )
    if o.shape != q.shape:
        raise ValueError(f"o has shape {tuple(o.shape)}, but q has {tuple(q.shape)}")
    if k.shape[0] != q.shape[0]:
        raise ValueError(
            f"k has batch size {k.shape[0]}, but q has {q.shape[0]}: a batch of 1 serves n by "
            ".expand(n, -1, -1, -1), which copies nothing"
        )
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(
            f"q has {q.shape[2]} heads and k {k.shape[2]}: the query heads must be a multiple of "
            "the KV heads; tensors of (batch, heads, seq, d_head) need .transpose(1, 2)"
        )


def check_output_strides(o: torch.Tensor, name: str = "o") -> None:
    """Every element of the output must have memory of its own."""
    dims = sorted((s, n) for s, n in zip(o.stride(), o.shape, strict=True) if n > 1)
    reach = 0  # distance from the first to the last element of the smaller dimensions
    for stride, size in dims:
        if stride <= reach:
            raise ValueError(
                f"{name} has strides {tuple(o.stride())} for shape {tuple(o.shape)}: its elements "
                "overlap in memory"
            )
        reach += stride * (size - 1)


def check_lse(lse: torch.Tensor, q: torch.Tensor, name: str = "lse") -> None:
    expected = (q.shape[0], q.shape[2], q.shape[1])
    if not isinstance(lse, torch.Tensor):
        raise TypeError(f"{name} is {kind_of(lse)}: expected a torch.Tensor or None")
    if lse.dtype != torch.float32 or tuple(lse.shape) != expected or not lse.is_contiguous():
        raise ValueError(
            f"{name} is a {lse.dtype} tensor of shape {tuple(lse.shape)}: expected a contiguous "
            f"torch.float32 tensor of shape {expected} (batch, heads, seq)"
        )
    if lse.device != q.device:
        raise ValueError(f"{name} is on {lse.device}, but q is on {q.device}")
    check_plain(name, lse)
    check_no_gradient(name, lse)


def check_output(q: torch.Tensor, o: torch.Tensor, inputs: dict[str, torch.Tensor]) -> None:
    """Raises TypeError or ValueError for an output that is not like q, or shares memory."""
    _check_kind("out", o, q)
    check_plain("out", o)
    if o.dtype != q.dtype or o.shape != q.shape:
        raise ValueError(
            f"out is a {o.dtype} tensor of shape {tuple(o.shape)}: expected {q.dtype} and "
            f"{tuple(q.shape)}, like q"
        )
    check_layout("out", o)
    check_output_strides(o)
    check_no_gradient("out", o)
    check_no_overlap({"out": o}, inputs)
