"""Products of matrices, and what can be done to them before they are stored."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ...triton_kit.tuning import Tuned, best_for
from ..activations import NAMES
from ..checked import check_like, check_out, check_shape, check_tensor, check_word
from ..elementwise.calls import activation_grad
from ..hopper import HOPPER
from ..launching import differentiable, is_one_operator, is_recorded, operator, processors, run
from ..remembered import remembered
from .config import MatmulConfig, without_overlap
from .op import DirectMatmul, MatmulCall, TiledMatmul, dense, matmul_call
from .persistent_op import PersistentConfig, PersistentMatmul

ACTIVATIONS = ("none", *NAMES)
PRECISIONS = ("ieee", "tf32", "tf32x3")
VERSIONS = ("direct", "tiled", "pipelined", "tuned", "persistent")
_AMPERE, _HOPPER = 80, 90
_TUNED: dict[tuple[Any, ...], MatmulConfig] = {}

Optional = torch.Tensor | None


@remembered
def matmul(
    a: torch.Tensor, b: torch.Tensor, *, bias: Optional = None, activation: str = "none",
    residual: Optional = None, precision: str = "ieee", version: str = "pipelined",
    out: Optional = None, config: MatmulConfig | PersistentConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """activation(a b + bias) + residual in one kernel: summed in fp32, rounded once.

    a is (m, k), b (k, n), bias (n), residual and out (m, n), all fp16, bf16 or fp32 of one type, on
    a CUDA device or on the CPU, where the emulator runs the kernel; any sizes and strides (a matrix
    with neither rows nor columns contiguous is copied). out may be the residual. `activation`:
    none, relu, gelu_tanh, gelu_erf or silu. `precision` of fp32: ieee, tf32 (10 bits of fraction),
    tf32x3 (three products of tf32, nearly fp32). `version`: pipelined; tiled (nothing in flight);
    tuned (the fastest configuration, measured at the first call with such sizes, on a GPU only);
    persistent (for Hopper, fp16 and bf16 whose rows begin at multiples of 16 bytes, no residual;
    taken for pipelined where it hides a bias and activation); direct (no tensor cores, bias,
    activation or residual). Gradients flow to a, b, bias and residual. Raises TypeError or
    ValueError, naming the argument, before the launch; TritonVersionError for a missing or other
    triton.
    """
    tensors = {"a": a, "b": b, "bias": bias, "residual": residual}
    if is_one_operator(tensors, out=out, config=config):
        given = (a, b, bias, residual, activation, precision, version)
        return _differentiable(*given)  # type: ignore[no-any-return]
    return _matmul(a, b, bias, residual, activation, precision, version, out, config)


def matmul_best_config(
    a: torch.Tensor, b: torch.Tensor, *, bias: Optional = None, activation: str = "none",
    residual: Optional = None, precision: str = "ieee", measure_now: bool = True,
) -> Tuned[MatmulConfig]:  # fmt: skip
    """The fastest configuration of `matmul` for tensors like these, on a GPU, and its milliseconds:
    measured at the first call, then read from the cache. A configuration that does not run is left
    out, with a warning. Raises as `matmul`, and TuningFailedError if none runs; with `measure_now`
    False NotTunedError if the cache has none."""
    _check(a, b, bias, residual, activation, precision, "tuned")
    out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    op = _tiled(a.device)
    call, tensors = _launch(a, b, bias, residual, out, activation, precision)
    return best_for(op, call, tensors, measure_now=measure_now)


@remembered
def _matmul(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str,
    precision: str, version: str, out: Optional, config: MatmulConfig | PersistentConfig | None,
) -> torch.Tensor:  # fmt: skip
    _check(a, b, bias, residual, activation, precision, version)
    shape = (a.shape[0], b.shape[1])
    if out is not None:
        given = {"a": a, "b": b, "bias": bias, "residual": residual}
        inputs = {name: x for name, x in given.items() if x is not None}
        check_out(out, shape, a, inputs, apart=("a", "b", "bias"))
    place = out
    if place is None or not (place.stride(1) == 1 or shape[1] == 1):
        place = torch.empty(shape, dtype=a.dtype, device=a.device)
    if place.numel():
        call, tensors = _launch(a, b, bias, residual, place, activation, precision)
        _run(call, tensors, version, config)
    return place if out is None or out is place else out.copy_(place)


def _run(call: MatmulCall, tensors: tuple[torch.Tensor, ...], version: str, config: Any) -> None:
    """The version's launch; `config` is checked by its Op."""
    a, b, bias, _, out = tensors
    if version == "direct":
        run(DirectMatmul(), call, (a, b, out), config)
    elif version == "persistent":
        if is_recorded(a):
            raise NotImplementedError(
                "version is 'persistent': torch.compile cannot record its descriptors; use another"
            )
        op = PersistentMatmul()
        op.check_call(call)
        if a.device.type == "cuda":
            op.check_device(a.device)
        run(op, call, (a, b, out, bias), config)
    elif version == "pipelined" and config is None and _hides(call, a):
        run(PersistentMatmul(), call, (a, b, out, bias))
    else:
        tiled = _tiled(a.device)
        run(tiled, call, tensors, config or _config(tiled, call, tensors, version))


def _hides(call: MatmulCall, a: torch.Tensor) -> bool:
    """Whether the persistent kernel is faster, as it is where it hides what follows a product."""
    if a.device.type != "cuda" or is_recorded(a):
        return False
    hopper = torch.cuda.get_device_capability(a.device) == HOPPER
    return hopper and PersistentMatmul().hides(call, processors(a.device))


def _config(
    op: TiledMatmul, call: MatmulCall, tensors: tuple[torch.Tensor, ...], version: str
) -> MatmulConfig:
    if version == "tuned" and not is_recorded(tensors[0]):
        known = (op, call, tensors[0].device)
        if known not in _TUNED:
            _TUNED[known] = best_for(op, call, tensors).config
        return _TUNED[known]
    config = op.default(call)
    return without_overlap(config) if version == "tiled" else config


def _tiled(device: torch.device) -> TiledMatmul:
    return TiledMatmul(newest_architecture(device))


def newest_architecture(device: torch.device) -> int:
    """Whose configurations are taken on a device: 90 or 80, which the emulator stands for."""
    if device.type == "cpu":
        return _AMPERE
    newer = torch.cuda.get_device_properties(device).major >= _HOPPER // 10
    return _HOPPER if newer else _AMPERE


def _launch(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, out: torch.Tensor,
    activation: str, precision: str,
) -> tuple[MatmulCall, tuple[torch.Tensor, ...]]:  # fmt: skip
    """The call, and the tensors as the kernel takes them."""
    if a.shape[1] == 0:  # neither has memory: the sum of one product that is 0
        a, b = a.new_zeros(a.shape[0], 8), b.new_zeros(8, b.shape[1])
    a, b = dense(a), dense(b)
    bias = None if bias is None else bias.contiguous()
    if residual is not None and residual.stride(1) != 1 and residual.shape[1] != 1:
        residual = residual.contiguous()
    call = matmul_call(a, b, bias, residual, out, activation, precision)
    return call, (a, b, a if bias is None else bias, a if residual is None else residual, out)


def _check(
    a: torch.Tensor, b: torch.Tensor, bias: Optional, residual: Optional, activation: str,
    precision: str, version: str,
) -> None:  # fmt: skip
    """Raises TypeError or ValueError for arguments that are not as `matmul` says."""
    check_word("activation", activation, ACTIVATIONS)
    check_word("precision", precision, PRECISIONS)
    check_word("version", version, VERSIONS)
    check_tensor("a", a)
    check_like("b", b, "a", a)
    for name, matrix in (("a", a), ("b", b)):
        if matrix.dim() != 2:
            raise ValueError(f"{name} has {matrix.dim()} dimensions: expected a matrix")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"b has shape {tuple(b.shape)}: expected {a.shape[1]} rows, as many as a has columns"
        )
    m, n = a.shape[0], b.shape[1]
    if bias is not None:
        check_like("bias", bias, "a", a)
        check_shape("bias", bias, (n,), "a number for every column of b")
    if residual is not None:
        check_like("residual", residual, "a", a)
        check_shape("residual", residual, (m, n), "that of the product")
    if version == "direct" and (bias is not None or residual is not None or activation != "none"):
        raise ValueError("version is 'direct': it takes no bias, activation or residual")
    if version == "persistent" and residual is not None:
        raise ValueError("version is 'persistent': it takes no residual")
    if version == "tuned" and a.device.type == "cpu":
        raise ValueError("version is 'tuned': only a GPU can be tuned for, and a is on cpu")


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("matmul")
def _matmul_op(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None,
    activation: str, precision: str, version: str,
) -> torch.Tensor:  # fmt: skip
    return _matmul(a, b, bias, residual, activation, precision, version, None, None)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, bias, _, ctx.activation, ctx.precision, ctx.version = inputs
    ctx.save_for_backward(a, b, bias)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """What goes into the activation is not kept: its gradient computes it again."""
    a, b, bias = ctx.saved_tensors
    product = partial(matmul, precision=ctx.precision, version=ctx.version)
    inner = grad
    if ctx.activation != "none":
        before = product(a, b, bias=bias)
        inner = activation_grad(before, grad, ctx.activation)
    need_a, need_b, need_bias, need_residual = ctx.needs_input_grad[:4]
    return (
        product(inner, b.T) if need_a else None,
        product(a.T, inner) if need_b else None,
        inner.sum(0) if need_bias else None,
        grad if need_residual else None,
        None, None, None,
    )  # fmt: skip


_differentiable = differentiable(
    _matmul_op, partial(_matmul, out=None, config=None), _keep, _gradient
)
