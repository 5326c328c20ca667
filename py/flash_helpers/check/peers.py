"""Other people's attention, as references: `v2`, `v3`, and on a CPU our own fp32 one.

`v2` is flash-attn 2 where it is installed, else PyTorch's own build of FlashAttention-2. `v3` is
flash-attn 3 or 4 where installed, else cuDNN's attention through PyTorch. A peer that is missing
or that refuses the problem raises `ReferenceUnavailableError` with the reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..base.lazy import torch
from .reference import attention_reference

Attention: TypeAlias = "Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]"
VERSIONS = ("v2", "v3")
# Module and the text that names it in tables, best first.
_PACKAGES = {
    "v2": (("flash_attn", "flash-attn 2"),),
    "v3": (("flash_attn_interface", "flash-attn 3"), ("flash_attn.cute", "flash-attn 4")),
}
_SDPA = {
    "v2": ("FLASH_ATTENTION", "PyTorch FlashAttention-2"),
    "v3": ("CUDNN_ATTENTION", "PyTorch cuDNN"),
}


class ReferenceUnavailableError(RuntimeError):
    """A reference cannot be run here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """A reference that was found. `note` says why a better one was not taken."""

    name: str
    note: str
    function: Attention

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        try:
            return self.function(q, k, v)
        except ReferenceUnavailableError:
            raise
        except RuntimeError as error:  # e.g. "No available kernel"
            first_line = (str(error).strip().splitlines() or ["no message"])[0]
            raise ReferenceUnavailableError(f"{self.name} refuses this: {first_line}") from error


def find_peer(version: str, device_type: str, causal: bool = False) -> Peer:
    """The reference `v2` or `v3` for tensors on a `cuda` or `cpu` device; `causal`: for queries and
    keys of equal lengths, each query sees no key after it."""
    if version not in VERSIONS:
        raise ValueError(f"reference {version!r} is not known: expected one of {VERSIONS}")
    if device_type == "cpu":

        def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attention_reference(q, k, v, causal=causal)[0].to(q.dtype)

        return Peer("fp32 reference", f"{version} needs a GPU", reference)
    notes: list[str] = []
    for module_name, label in _PACKAGES[version]:
        function, problem = package_function(module_name, causal)
        if function is not None:
            return Peer(label, "; ".join(notes), function)
        notes.append(f"{label}: {problem}")
    backend, label = _SDPA[version]
    return Peer(label, "; ".join(notes), sdpa_function(backend, causal))


def package_function(module_name: str, causal: bool = False) -> tuple[Attention | None, str]:
    """The package's `flash_attn_func`, or why there is none."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        return None, "not installed"
    except Exception as error:  # a build for another torch fails in many ways
        return None, f"import failed: {type(error).__name__}: {error}".splitlines()[0]
    function: Any = getattr(module, "flash_attn_func", None)
    if function is None:
        return None, f"{module_name} has no flash_attn_func"

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result = function(q, k, v, causal=causal)
        output: torch.Tensor = result[0] if isinstance(result, tuple) else result
        return output

    return attention, ""


def sdpa_function(backend: str, causal: bool = False) -> Attention:
    """PyTorch's attention on one of its backends: the name of a member of SDPBackend."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))  # heads before the sequence
        with sdpa_kernel(getattr(SDPBackend, backend)):
            output = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
            )
        return output.transpose(1, 2)

    return attention
