"""Checks of operators' arguments, before anything is launched: each message names the argument,
what it is and what is allowed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence

import torch
from torch.autograd import forward_ad

from flash_helpers.base.words import kind_of

from ..checks.eager import check_no_tangent
from ..checks.kinds import check_dense, check_device, check_sign, require_tensor
from ..checks.memory import ALIGNMENT_BYTES, byte_range, check_storage
from .launching import is_recorded

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_tensor(name: str, value: object, dtypes: Sequence[torch.dtype] = DTYPES) -> None:
    """Raises TypeError or ValueError unless it is a dense tensor of such a type, in the memory of a
    GPU or of the CPU."""
    require_tensor(name, value)
    assert isinstance(value, torch.Tensor)
    check_dense(name, value)
    check_device(name, value.device)
    if value.dtype not in dtypes:
        *most, last = map(str, dtypes)
        allowed = f"{', '.join(most)} and {last}" if most else last
        raise ValueError(f"{name} has dtype {value.dtype}: allowed are {allowed}")
    if not torch.compiler.is_compiling():  # a graph cannot ask
        check_sign(name, value)
    if not is_recorded(value):
        check_storage(name, value)
        if forward_ad._current_level >= 0:
            check_no_tangent(name, value)


def check_like(
    name: str, value: object, first_name: str, first: torch.Tensor,
    dtypes: Sequence[torch.dtype] | None = None,
) -> None:  # fmt: skip
    """check_tensor, and the device of `first`; its type too, unless others are allowed."""
    check_tensor(name, value, dtypes or DTYPES)
    assert isinstance(value, torch.Tensor)
    if dtypes is None and value.dtype != first.dtype:
        raise ValueError(f"{name} has dtype {value.dtype}, but {first_name} has {first.dtype}")
    if value.device != first.device:
        raise ValueError(f"{name} is on {value.device}, but {first_name} is on {first.device}")


def check_shape(name: str, value: torch.Tensor, expected: tuple[int, ...], why: str) -> None:
    """Raises ValueError for another shape; `why` says where the expected one comes from."""
    if tuple(value.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(value.shape)}: expected {expected}, {why}")


def check_number(name: str, value: object) -> float:
    """The value as fp32 can have it. Raises TypeError for anything but a number, ValueError for one
    beyond fp32."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {kind_of(value)}: expected a number")
    number = float(value)
    if math.isfinite(number) and abs(number) > torch.finfo(torch.float32).max:
        raise ValueError(f"{name} is {value}: at most {torch.finfo(torch.float32).max} in fp32")
    return number


def check_word(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raises TypeError or ValueError for anything but one of these words."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {kind_of(value)}: expected one of {', '.join(allowed)}")
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: allowed are {', '.join(allowed)}")


def check_out(
    out: object, shape: tuple[int, ...], first: torch.Tensor, inputs: Mapping[str, torch.Tensor],
    apart: Sequence[str] = (),
) -> None:  # fmt: skip
    """Raises TypeError or ValueError for an output of another shape or type, whose elements share
    memory with each other, or with an input that does not lie exactly as it does or is one of those
    `apart`, which are read after others were written."""
    check_like("out", out, next(iter(inputs)), first)
    assert isinstance(out, torch.Tensor)
    check_shape("out", out, shape, "that of the result")
    if any(s == 0 and n > 1 for s, n in zip(out.stride(), out.shape, strict=True)) or (
        out.numel() > 0 and _has_overlap(out)
    ):
        raise ValueError(
            f"out has strides {tuple(out.stride())} for shape {tuple(out.shape)}: its elements "
            "overlap in memory"
        )
    if out.requires_grad and torch.is_grad_enabled():
        raise ValueError("out requires a gradient: pass a detached tensor")
    if is_recorded(out):
        return
    begin, end = byte_range(out)
    for name, tensor in inputs.items():
        other_begin, other_end = byte_range(tensor)
        same = (
            name not in apart
            and tensor.data_ptr() == out.data_ptr()
            and tensor.shape == out.shape
            and tensor.stride() == out.stride()
        )
        if not same and begin < other_end and other_begin < end:
            raise ValueError(
                f"out shares memory with {name}: it must be "
                f"{'' if name in apart else 'the same tensor or '}one of its own"
            )


def _has_overlap(tensor: torch.Tensor) -> bool:
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def aligned(*tensors: torch.Tensor) -> bool:
    """All begin at a multiple of 16 bytes; those that are recorded are thought to."""
    return not any(t.data_ptr() % ALIGNMENT_BYTES for t in tensors if not is_recorded(t))


def check_dim(name: str, value: object, x: torch.Tensor) -> int:
    """The dimension counted from the front. Raises TypeError or ValueError for one x does not
    have."""
    check_integer(name, value)
    assert isinstance(value, int)
    if not -x.dim() <= value < x.dim():
        raise ValueError(f"{name} is {value}: x has {x.dim()} dimensions")
    return value % x.dim()


def check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {kind_of(value)}: expected an integer")
