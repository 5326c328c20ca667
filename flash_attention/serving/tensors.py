"""The tensors of a serving call, checked one by one."""

import torch

from flash_helpers.base.words import kind_of

from ..checks import readable
from ..checks.arguments import check_layout, check_no_gradient, check_output_strides
from ..checks.eager import check_plain
from ..checks.kinds import check_dense, check_device, require_tensor
from ..checks.memory import ALIGNMENT_BYTES, ALIGNMENT_ELEMENTS, check_alignment
from .options import one_of

_DTYPES = (torch.float16, torch.bfloat16)


def check_operand(name: str, x: object, like: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """A dense tensor of one of these numbers of dimensions, with the device and type of `like`.
    Raises TypeError or ValueError."""
    require_tensor(name, x)
    assert isinstance(x, torch.Tensor)
    check_dense(name, x)
    check_device(name, like.device)
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, but q is on {like.device}")
    check_plain(name, x)
    if x.dim() not in dims:
        expected = " or ".join(map(str, dims))
        raise ValueError(f"{name} has shape {tuple(x.shape)}: expected {expected} dimensions")
    if x.dtype not in _DTYPES:
        raise ValueError(f"{name} has dtype {x.dtype}: expected float16 or bfloat16")
    if x.dtype != like.dtype:
        raise ValueError(f"{name} has dtype {x.dtype}, but q has {like.dtype}")
    if x.shape[-1] == 0:
        raise ValueError(f"{name} has head dimension 0: at least 1 is needed")
    check_no_gradient(name, x)
    return x


def check_heads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, qv: torch.Tensor | None = None
) -> None:
    """Raises ValueError for keys and values that do not fit the queries, or each other."""
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(
            f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}: only their head dimensions may "
            "differ"
        )
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k has head dimension {k.shape[-1]}, but q has {q.shape[-1]}")
    if qv is not None and v.shape[-1] != qv.shape[-1]:
        raise ValueError(f"v has head dimension {v.shape[-1]}, but qv has {qv.shape[-1]}")
    if qv is None and v.shape[-1] > q.shape[-1]:
        raise ValueError(
            f"v has head dimension {v.shape[-1]}: at most that of q, {q.shape[-1]}, is supported"
        )
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        raise ValueError(
            f"q has {q.shape[-2]} heads and k {k.shape[-2]}: the query heads must be a multiple of "
            "the KV heads"
        )


def check_cache(name: str, x: torch.Tensor) -> None:
    """Raises ValueError for a cache that kernels cannot read as it is: it is never copied."""
    if x.shape[-1] % ALIGNMENT_ELEMENTS:
        raise ValueError(
            f"{name} has head dimension {x.shape[-1]}: of a cache, which is never copied, expected "
            f"a multiple of {ALIGNMENT_ELEMENTS}"
        )
    if x.numel() == 0:
        return
    check_layout(name, x)
    check_alignment({name: x})


def check_index(
    name: str, x: object, like: torch.Tensor, shape: tuple[int | None, ...]
) -> torch.Tensor:
    """A tensor of numbers that the device reads: int32, contiguous in its last dimension. None in
    `shape` is any size. Raises TypeError or ValueError."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} is {kind_of(x)}: expected a torch.Tensor of int32")
    check_dense(name, x)
    check_plain(name, x)
    if x.dtype != torch.int32:
        raise ValueError(f"{name} has dtype {x.dtype}: expected torch.int32; call .int()")
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, but q is on {like.device}")
    fits = x.dim() == len(shape) and all(
        s is None or s == n for s, n in zip(shape, x.shape, strict=True)
    )
    if not fits:
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {tuple(x.shape)}: expected ({expected})")
    if x.numel() and x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"{name} is not contiguous in its last dimension")
    return x


def check_out(out: object, q: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor that the result can be written to. Raises TypeError or ValueError."""
    out = check_operand("out", out, q, (len(shape),))
    if tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}: expected {shape}")
    if out.numel():
        check_output_strides(out, "out")
        if not shape[-1] % ALIGNMENT_ELEMENTS:  # else a copy of it is written
            check_layout("out", as_batch(out))
            check_alignment({"out": out})
    return out


def check_table(name: str, x: object, q: torch.Tensor) -> torch.Tensor:
    """A table of two dimensions with the type of q, or a contiguous copy. Raises TypeError or
    ValueError."""
    x = check_operand(name, x, q, (2,)).contiguous()
    return x if not x.data_ptr() % ALIGNMENT_BYTES else x.clone()


def sinks_of(given: dict[str, object], q: torch.Tensor) -> dict[str, torch.Tensor]:
    """The sinks, which have several names, as fp32, which kernels read. Raises TypeError or
    ValueError."""
    sinks = one_of(given)
    if sinks is None:
        return {}
    require_tensor("s_aux", sinks)
    assert isinstance(sinks, torch.Tensor)
    check_dense("s_aux", sinks)
    check_plain("s_aux", sinks)
    check_no_gradient("s_aux", sinks)
    n_heads = q.shape[-2]
    if sinks.dtype not in (*_DTYPES, torch.float32) or tuple(sinks.shape) != (n_heads,):
        raise ValueError(
            f"s_aux is a {sinks.dtype} tensor of shape {tuple(sinks.shape)}: expected one of "
            f"float32, float16 or bfloat16 with one number for each of the {n_heads} heads"
        )
    if sinks.device != q.device:
        raise ValueError(f"s_aux is on {sinks.device}, but q is on {q.device}")
    return {"sinks": read_sinks(sinks)}


def read_sinks(sinks: torch.Tensor) -> torch.Tensor:
    """As kernels read them: fp32, contiguous; a copy where they are not."""
    return sinks.float().contiguous()


def filled_up(x: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with zeros behind each head, up to the next multiple of 8."""
    return readable.filled_up(x, x.shape[-1] + -x.shape[-1] % ALIGNMENT_ELEMENTS)


def as_batch(x: torch.Tensor) -> torch.Tensor:
    """Packed rows as one sequence."""
    return x if x.dim() == 4 else x.unsqueeze(0)
