"""Convolutions of images, and what can be done to them before they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch

from flash_helpers.base.words import kind_of

from ..checked import aligned, check_integer, check_like, check_shape, check_tensor, check_word
from ..hopper import HOPPER
from ..launching import is_one_operator, is_recorded, operator, run
from ..matrices.calls import ACTIVATIONS, PRECISIONS, matmul, newest_architecture
from ..matrices.config import MatmulConfig
from ..remembered import remembered
from .op import ConvCall, DirectConv, ImplicitConv, Pair, Unfold
from .persistent_op import PersistentConv, PersistentConvConfig, unfit
from .single_op import SingleConv, SingleConvConfig

ALGORITHMS = ("implicit", "im2col", "direct", "persistent")
_MOST_GROUPS = 65535  # of a grid's second dimension
_LAST = torch.channels_last

Optional = torch.Tensor | None
Config = MatmulConfig | PersistentConvConfig | SingleConvConfig


@remembered
def conv2d(
    x: torch.Tensor, weight: torch.Tensor, bias: Optional = None, *, stride: int | Pair = 1,
    padding: int | Pair = 0, dilation: int | Pair = 1, groups: int = 1, activation: str = "none",
    precision: str = "ieee", algorithm: str = "implicit", config: Config | None = None,
) -> torch.Tensor:  # fmt: skip
    """activation(the convolution + bias) in one kernel: summed in fp32, rounded once.

    x is (images, channels, height, width), weight (filters, channels / groups, height, width), bias
    (filters), all fp16, bf16 or fp32 of one type, on a CUDA device or on the CPU, where the
    emulator runs the kernel. `algorithm`: implicit (a product of matrices, whose left one is never
    made), persistent (the same for Hopper by TMA: 16-bit numbers, stride 1, one group, channels and
    filters by eights; implicit takes it where it is faster, and for few tiles of one tap the kernel
    that a SingleConvConfig asks for) and im2col (made by a first kernel, then `matmul`) read and
    return channels_last, others are copied; direct (no tensor cores, any strides, no bias or
    activation). `activation` and `precision` as of `matmul`. No gradient flows.
    Raises TypeError or ValueError, naming the argument, before the launch; TritonVersionError for a
    missing or other triton.
    """
    check_word("activation", activation, ACTIVATIONS)
    check_word("precision", precision, PRECISIONS)
    check_word("algorithm", algorithm, ALGORITHMS)
    pairs = (
        _pair("stride", stride, 1), _pair("padding", padding, 0), _pair("dilation", dilation, 1),
    )  # fmt: skip
    check_integer("groups", groups)
    if is_one_operator({"x": x, "weight": weight, "bias": bias}, config=config):
        lists = [list(pair) for pair in pairs]
        return torch.ops.flash_attention.conv2d(  # type: ignore[no-any-return]
            x, weight, bias, *lists, groups, activation, precision, algorithm
        )
    return _conv2d(x, weight, bias, pairs, groups, activation, precision, algorithm, config)


def _pair(name: str, value: object, least: int) -> Pair:
    """Of an integer or two. Raises TypeError or ValueError for anything else."""
    pair = (value, value) if isinstance(value, int) else value
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name} is {kind_of(value)}: expected an integer or a pair of them")
    for each in pair:
        check_integer(name, each)
        if each < least:
            raise ValueError(f"{name} is {value}: at least {least}")
    return pair[0], pair[1]


def _conv2d(
    x: torch.Tensor, weight: torch.Tensor, bias: Optional, pairs: tuple[Pair, Pair, Pair],
    groups: int, activation: str, precision: str, algorithm: str, config: Config | None,
) -> torch.Tensor:  # fmt: skip
    """`pairs`: stride, padding and dilation."""
    _check(x, weight, bias, groups)
    if algorithm == "direct" and (bias is not None or activation != "none"):
        raise ValueError("algorithm is 'direct': it takes no bias or activation")
    filters, channels = weight.shape[:2]
    taps, size = (weight.shape[2], weight.shape[3]), (x.shape[2], x.shape[3])
    out_size = _out_size(size, taps, *pairs)
    shape = (x.shape[0], filters, *out_size)
    form = torch.contiguous_format if algorithm == "direct" else _LAST
    out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=form)
    if not out.numel():
        return out
    x, weight = (x, weight.contiguous()) if algorithm == "direct" else (_last(x), _last(weight))
    bias = None if bias is None else bias.contiguous()
    call = ConvCall(
        x.shape[0], channels, filters // groups, size, out_size, taps, *pairs,
        groups, str(x.dtype).removeprefix("torch."), bias is not None, activation, precision,
        aligned(*(t for t in (x, weight, bias) if t is not None)),
    )  # fmt: skip
    if algorithm == "persistent" or (algorithm == "implicit" and _is_persistent(call, x, config)):
        tensors = (x, weight, out, x if bias is None else bias)
        _by_tma(call, tensors, config, implicit=algorithm == "implicit")
    elif algorithm == "implicit":
        tensors = (x, weight, x if bias is None else bias, out)
        run(ImplicitConv(newest_architecture(x.device)), call, tensors, cast("Any", config))
    elif algorithm == "im2col":
        _by_matrices(call, x, weight, bias, out, cast("Any", config))
    else:
        strides = (*x.stride(), *out.stride()[:3])
        run(DirectConv(), replace(call, strides=strides), (x, weight, out), cast("Any", config))
    return out


def _is_persistent(call: ConvCall, x: torch.Tensor, config: Config | None) -> bool:
    """Whether the persistent kernel can run: on an H200 it is faster than the other one for every
    layer of ResNet-50 that was measured."""
    if config is not None or x.device.type == "cpu" or is_recorded(x) or unfit(call):
        return False
    return torch.cuda.get_device_capability(x.device) == HOPPER


def _by_tma(
    call: ConvCall, tensors: tuple[torch.Tensor, ...], config: Config | None, *, implicit: bool
) -> None:
    """Raises NotImplementedError for a recorded call, ValueError for what the kernel is not for."""
    if is_recorded(tensors[0]):
        raise NotImplementedError(
            "algorithm is 'persistent': torch.compile cannot record its descriptors; use another"
        )
    one_each = isinstance(config, SingleConvConfig)
    one_each = one_each or (config is None and implicit and SingleConv().is_faster(call))
    op: Any = SingleConv() if one_each else PersistentConv()
    op.check_call(call)
    if tensors[0].device.type == "cuda":
        op.check_device(tensors[0].device)
    run(op, call, tensors, config)


def unfolded(call: ConvCall, x: torch.Tensor) -> torch.Tensor:
    """(pixels of the output, groups, taps times channels): what each of them needs of x, which is
    channels_last without gaps."""
    each = call.channels * call.taps[0] * call.taps[1]
    matrix = torch.empty((call.pixels, call.groups, each), dtype=x.dtype, device=x.device)
    run(Unfold(), call, (x, matrix))
    return matrix


def _by_matrices(
    call: ConvCall, x: torch.Tensor, weight: torch.Tensor, bias: Optional, out: torch.Tensor,
    config: MatmulConfig | None,
) -> None:  # fmt: skip
    matrix = unfolded(call, x)
    filters = call.filters
    rows = out.permute(0, 2, 3, 1).reshape(call.pixels, -1)
    by_filter = weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)
    for group in range(call.groups):
        its = slice(group * filters, (group + 1) * filters)
        matmul(
            matrix[:, group], by_filter[its].T, bias=None if bias is None else bias[its],
            activation=call.activation, precision=call.precision, out=rows[:, its], config=config,
        )  # fmt: skip


def _last(x: torch.Tensor) -> torch.Tensor:
    """x itself if it lies channels last without gaps, else such a copy. Strides of dimensions of
    one element do not say how a tensor lies, but the kernels do not ask for them."""
    return x.contiguous(memory_format=_LAST)


def _out_size(size: Pair, taps: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """Raises ValueError where the kernel is larger than the padded image."""
    found = []
    for n, k, s, p, d in zip(size, taps, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        if reach > n + 2 * p:
            raise ValueError(
                f"weight reaches over {reach} pixels: x has {n}, with padding {n + 2 * p}"
            )
        found.append((n + 2 * p - reach) // s + 1)
    return found[0], found[1]


def _check(x: torch.Tensor, weight: torch.Tensor, bias: Optional, groups: int) -> None:
    """Raises TypeError or ValueError for arguments that are not as `conv2d` says."""
    check_tensor("x", x)
    check_like("weight", weight, "x", x)
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions: expected 4")
    filters, channels = weight.shape[:2]
    if not 1 <= groups <= _MOST_GROUPS or filters % groups:
        raise ValueError(
            f"groups is {groups}: allowed are the divisors of {filters}, the filters of weight, up "
            f"to {_MOST_GROUPS}"
        )
    if x.shape[1] != channels * groups or 0 in weight.shape:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}: for {x.shape[1]} channels of x in {groups} "
            f"groups expected {x.shape[1] // groups} channels, and no empty dimension"
        )
    if bias is not None:
        check_like("bias", bias, "x", x)
        check_shape("bias", bias, (filters,), "a number for every filter of weight")


# --- as PyTorch's operator ----------------------------------------------------------------------


@operator("conv2d")
def _conv2d_op(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: list[int],
    padding: list[int], dilation: list[int], groups: int, activation: str, precision: str,
    algorithm: str,
) -> torch.Tensor:  # fmt: skip
    pairs = ((stride[0], stride[1]), (padding[0], padding[1]), (dilation[0], dilation[1]))
    return _conv2d(x, weight, bias, pairs, groups, activation, precision, algorithm, None)
