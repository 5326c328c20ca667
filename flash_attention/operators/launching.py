"""How an operator's kernel runs: on a GPU, in the emulator, or recorded by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._C import DispatchKey, _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack

from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS

from ..triton_kit import emulated
from ..triton_kit.op import C, Op, P
from ..triton_kit.versions import require_triton
from . import applied

NAMESPACE = "flash_attention"
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__
_require_triton = cache(require_triton)


class Operator(Op[C, P]):
    """An Op whose launches torch.compile can record."""

    def launch(self, config: C, problem: P, tensors: Sequence[torch.Tensor]) -> None:
        if not is_recorded(tensors[0]):
            return super().launch(config, problem, tensors)
        kernel = torch.library.wrap_triton(self.kernel_for(config, problem))
        launcher = kernel[self.grid(config, problem, processors(tensors[0].device))]
        launcher(*self.arguments(config, problem, tensors), **self.options(config, problem))
        return None


def processors(device: torch.device) -> int:
    """Multiprocessors of the GPU, or of the small one that the emulator stands for."""
    if device.type == "cpu":
        return EMULATED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def run(
    op: Operator[C, P], problem: P, tensors: Sequence[torch.Tensor], config: C | None = None
) -> None:
    """Launches on the tensors' device; on the CPU in the emulator. The arguments are checked.
    Raises TypeError or ValueError for a configuration that cannot be built, NotImplementedError for
    a recorded call on CPU tensors, TritonVersionError for a missing or other triton."""
    _require_triton()
    config = op.checked(config, problem)
    if tensors[0].device.type != "cpu":
        op.launch(config, problem, tensors)
    elif is_recorded(tensors[0]):
        raise NotImplementedError(
            f"{op.name}: torch.compile cannot record a call on CPU tensors, which the emulator "
            "runs; use CUDA tensors"
        )
    else:
        emulated.run(op, config, problem, tensors)


def is_recorded(tensor: torch.Tensor) -> bool:
    """The tensor stands for one that comes later: it has no memory of its own. What Dynamo reads
    looks like any other tensor."""
    if torch.compiler.is_dynamo_compiling():
        return True
    return type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH


def watched() -> bool:
    """Whether calls are recorded or transformed now, so that PyTorch must see them."""
    return (
        torch.compiler.is_compiling()
        or _is_tracing()
        or _len_torch_dispatch_stack() > 0
        or peek_interpreter_stack() is not None
        or torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.PreDispatch)
    )


def goes_through_torch(*tensors: torch.Tensor | None) -> bool:
    """Whether PyTorch must see the call as one operator: it is recorded, transformed or
    differentiated. The way through its dispatcher costs some 20 us, the direct one does not."""
    if watched():
        return True
    given = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if any(is_recorded(tensor) for tensor in given):
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)


def is_one_operator(tensors: Mapping[str, torch.Tensor | None], **own: object) -> bool:
    """Whether the call goes through PyTorch. One with something of its `own` (its output, its
    configuration) never does: no operator of PyTorch's takes that. Raises ValueError where a
    tensor's gradient would be lost by it."""
    given = [name for name, value in own.items() if value is not None]
    if not given:
        return goes_through_torch(*tensors.values())
    for name, tensor in tensors.items() if torch.is_grad_enabled() else ():
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, and a call with {given[0]} has no backward pass: "
                f"leave {given[0]} out, call under torch.no_grad(), or pass a detached tensor"
            )
    return False


def operator(name: str, mutates: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function of tensors, numbers and words as torch.ops.flash_attention.NAME; what it
    launches by `run` stays visible to torch.compile."""

    if not hasattr(torch.library, "triton_op"):
        raise ImportError(f"torch {torch.__version__} is installed: operators need 2.6 or newer")

    def register(function: Callable[..., Any]) -> Any:
        return torch.library.triton_op(f"{NAMESPACE}::{name}", function, mutates_args=mutates)

    return register


def differentiable(
    op: Any, forward: Callable[..., Any], keep: Callable[..., None], gradient: Callable[..., Any]
) -> Callable[..., Any]:
    """`forward`, which computes what the operator does, with `gradient`, of what `keep` puts into
    the context. Where nobody but autograd must see the call, it skips PyTorch's dispatcher, whose
    way there and back costs some hundred microseconds more."""
    op.register_autograd(gradient, setup_context=keep)

    def kept(ctx: Any, *args: Any) -> Any:
        result = forward(*args)
        keep(ctx, args, result)
        return result

    parts = {"forward": staticmethod(kept), "backward": staticmethod(gradient)}
    direct: Any = type("Differentiable", (torch.autograd.Function,), parts)
    # Like calls are known to have no tensors of transformations, which PyTorch looks for first.
    again: Any = super(torch.autograd.Function, direct).apply

    def call(*args: Any) -> Any:
        if watched() or any(is_recorded(arg) for arg in args if isinstance(arg, torch.Tensor)):
            return op(*args)
        result = direct.apply(*args)
        applied.note(again, args, result)
        return result

    return call
