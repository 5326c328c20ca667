"""torch.nn.functional.scaled_dot_product_attention with these kernels, where PyTorch would take its
own FlashAttention: `enable` and `disable`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import attention as torch_attention

NAME = "flash_attention_from_scratch"


@dataclass
class Replaced:
    """PyTorch's functions, until `remove`. Kept by PyTorch or here: it ends with the libraries."""

    libraries: list[Any] = field(default_factory=list)
    detour: Any = None  # of plain calls (sdpa_calls.py)

    def replace(self, functions: dict[str, Callable[..., Any]], key: str) -> None:
        library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for name, function in functions.items():
            original = torch.library.get_kernel(f"aten::{name}", key)
            with warnings.catch_warnings():  # that there is one already
                warnings.simplefilter("ignore", UserWarning)
                library.impl(name, partial(function, original), key, with_keyset=True)
        self.libraries.append(library)

    def remove(self) -> None:
        if self.detour is not None:
            self.detour.end()
            self.detour = None
        for library in self.libraries:
            library._destroy()
        self.libraries.clear()


_cuda: list[Replaced] = []  # where PyTorch has no place for it
_cpu = Replaced()


def _has_registry() -> bool:
    """Whether PyTorch lets go of what it was given, too: 2.10 has no function for that."""
    names = ("register", "activate", "current", "restore")
    return all(hasattr(torch_attention, f"{name}_flash_attention_impl") for name in names)


def enable(*, emulator: bool = False) -> None:
    """From now on torch.nn.functional.scaled_dot_product_attention computes with these kernels
    wherever it would with PyTorch's FlashAttention and they serve the call (fp16 and bf16, head
    dimensions up to 256, no dropout); any other call is PyTorch's as before. So it is for
    compiled functions and for gradients. In the whole process; `disable` ends it.

    PyTorch's registry knows it as "flash_attention_from_scratch", so that another
    implementation that is activated there takes its place.

    Args:
        emulator: CPU tensors too, which the emulator takes a thousand times longer for: for tests.

    Raises:
        RuntimeError: this PyTorch cannot give its own functions back (it is older than 2.10).
    """
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(
            f"torch {torch.__version__} has no torch.library.get_kernel, by which calls that these "
            "kernels do not serve reach PyTorch's own: take torch 2.10 or newer, or call "
            "flash_attention.flash_attn_func"
        )
    disable()
    if torch.version.cuda:
        if _has_registry():
            torch_attention.activate_flash_attention_impl(NAME)
        else:
            _cuda.append(_replace_cuda())
    if emulator:
        _replace_cpu()


def disable() -> None:
    """PyTorch computes with its own kernels again; nothing where it does."""
    if _has_registry() and torch_attention.current_flash_attention_impl() == NAME:
        torch_attention.restore_flash_attention_impl()
    while _cuda:
        _cuda.pop().remove()
    _cpu.remove()


def _replace_cuda() -> Replaced:
    # Not sooner: they import torch._dynamo, and that triton.
    from . import sdpa_calls, sdpa_kernels

    functions: dict[str, Callable[..., Any]] = {
        "_scaled_dot_product_flash_attention": sdpa_kernels.forward,
        "_scaled_dot_product_flash_attention_backward": sdpa_kernels.backward,
    }
    replaced = Replaced(detour=sdpa_calls.detour())
    replaced.replace(functions, "CUDA")
    return replaced


def _replace_cpu() -> None:
    from . import sdpa_kernels

    functions: dict[str, Callable[..., Any]] = {
        "_scaled_dot_product_flash_attention_for_cpu": sdpa_kernels.cpu_forward,
        "_scaled_dot_product_flash_attention_for_cpu_backward": sdpa_kernels.cpu_backward,
    }
    _cpu.replace(functions, "CPU")


if _has_registry():
    torch_attention.register_flash_attention_impl(NAME, register_fn=_replace_cuda)
