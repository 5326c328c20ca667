"""Refuses calls that would not run as they are written: PyTorch records or transforms them without
seeing the kernel, or a tensor's values are not in its memory."""

import torch
from torch._C import (
    DispatchKey,
    _are_functorch_transforms_active,
    _is_tracing,
    _len_torch_dispatch_stack,
)
from torch.autograd import forward_ad
from torch.fx.experimental import proxy_tensor

from flash_helpers.base.words import kind_of

from .memory import check_storage

# What says that a call is recorded, watched or transformed, for the extension to ask. The functions
# return false where it is not. The variables: of which module, and their value then. Not asked is
# whether autocast is on: it leaves what kernels take as it is.
QUIET_FUNCTIONS = (
    _is_tracing,
    _len_torch_dispatch_stack,
    _are_functorch_transforms_active,
)
QUIET_VARIABLES = (
    (proxy_tensor, "_CURRENT_MAKE_FX_TRACER", None),
    (forward_ad, "_current_level", -1),
)
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__  # of every class that does not override it
_UNSEEN = "it sees the allocation of the output and not the kernel, and the result would be garbage"
_ALLOWED = "call it outside, on plain tensors"


def is_watched() -> bool:
    """Whether calls are recorded in this thread, run without data, or seen by a mode; this costs
    some 0.1 us."""
    return (
        _is_tracing()
        or _len_torch_dispatch_stack() > 0
        # Of the whole process: only a hint that this thread may be recorded.
        or getattr(proxy_tensor, "_CURRENT_MAKE_FX_TRACER", None) is not None
    )


def is_wrapped(*tensors: object) -> bool:
    """Whether the tensors may be inside a transformation of torch.func, or one is of a subclass
    that has its values elsewhere, as DTensor and FakeTensor."""
    if _are_functorch_transforms_active():
        return True
    return any(
        type(x) is not torch.Tensor and isinstance(x, torch.Tensor) and not _is_plain(x)
        for x in tensors
    )


def require_eager() -> None:
    """Raises NotImplementedError if calls are recorded in this thread, or run without data. Every
    call of what is no operation of PyTorch begins here, also one that was checked before."""
    if is_watched():
        _refuse_recording()


def _refuse_recording() -> None:
    """Modes that only watch (FlopCounterMode and others) change no result and are let through."""
    if _is_tracing():
        raise NotImplementedError(f"torch.jit.trace cannot record this call: {_UNSEEN}; {_ALLOWED}")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    modes = _get_current_dispatch_mode_stack()
    # With pre_dispatch the recording mode is not on the stack; this key is the thread's own.
    recorded = torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.PreDispatch)
    if recorded or any(isinstance(mode, proxy_tensor.ProxyTorchDispatchMode) for mode in modes):
        raise NotImplementedError(
            f"make_fx (and torch.export, which uses it) cannot record this call: {_UNSEEN}; "
            f"{_ALLOWED}"
        )
    for mode in modes:
        if isinstance(mode, (FakeTensorMode, FunctionalTensorMode)):
            raise NotImplementedError(
                f"{type(mode).__name__} is active: its tensors have no memory that a kernel could "
                f"read or write; {_ALLOWED}"
            )


def check_plain(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError for a dense tensor whose values are not in its own memory, ValueError for
    one whose memory was freed or that has a forward-mode derivative."""
    check_class(name, tensor)
    transform = _transform_of(tensor)
    if transform:
        raise TypeError(
            f"{name} is inside {transform}: kernels take plain tensors, and nothing says how to "
            "transform this call"
        )
    check_storage(name, tensor)
    check_no_tangent(name, tensor)


def check_no_tangent(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor with a forward-mode derivative."""
    if forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
        raise ValueError(
            f"{name} has a forward-mode derivative, which the call would drop: pass the primal of "
            "torch.autograd.forward_ad.unpack_dual"
        )


def check_class(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError for a subclass that has its values elsewhere, as DTensor and FakeTensor."""
    if not _is_plain(tensor):
        raise TypeError(
            f"{name} is {kind_of(tensor)}, a subclass with __torch_dispatch__: kernels "
            "take plain tensors, such as it is made of (of a DTensor: .to_local())"
        )


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is _PLAIN_DISPATCH


def _transform_of(tensor: torch.Tensor) -> str:
    """The transformation that wraps the tensor; empty for a plain one."""
    functorch = torch._C._functorch
    if functorch.is_batchedtensor(tensor):
        return "torch.func.vmap"
    if functorch.is_gradtrackingtensor(tensor):
        return "torch.func.grad, vjp or jvp"
    if torch._is_functional_tensor(tensor):
        return "torch.func.functionalize"
    return "a transformation" if functorch.is_functorch_wrapped_tensor(tensor) else ""
