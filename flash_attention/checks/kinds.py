"""What kind of value an argument is: said in the same words by attention and by the operators."""

import torch

from flash_helpers.base.words import kind_of
from flash_helpers.kernels.problem import MAX_HEAD_DIMENSION

_DEVICES = ("cuda", "cpu")

# What works in place of a call that is refused.
_ANY = "instead, torch.nn.functional.scaled_dot_product_attention takes any"
_PAD = "pad what is narrower with zeros, and give softmax_scale"


def require_tensor(name: str, value: object) -> None:
    """Raises TypeError for anything but a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is {kind_of(value)}: expected a torch.Tensor")


def check_switch(name: str, value: object) -> None:
    """Raises TypeError for anything but True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {kind_of(value)}: expected True or False")


def check_dense(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor that is nested, or not strided."""
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else tensor.layout
        instead = ".to_padded_tensor(0.0)" if tensor.is_nested else ".to_dense()"
        raise ValueError(
            f"{name} has layout {layout}: only dense (strided) tensors are taken; call {instead}"
        )


def check_device(name: str, device: torch.device) -> None:
    """Raises ValueError for memory that is neither a GPU's nor the CPU's."""
    if device.type not in _DEVICES:
        raise ValueError(
            f"{name} is on {device}: only cuda and cpu (the emulator) are supported; move it with "
            ".to(...)"
        )


def check_sign(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a view whose memory has the other sign."""
    if tensor.is_neg():
        raise ValueError(
            f"{name} is a negated view: its memory has the other sign; call .resolve_neg()"
        )


def check_d_head(name: str, d_head: int, of_q: int) -> None:
    """Raises ValueError for a head dimension of q, k or v that no kernel takes beside q's."""
    if not d_head:
        raise ValueError(f"{name} has head dimension 0: at least 1 is needed")
    if d_head > MAX_HEAD_DIMENSION:
        raise ValueError(
            f"{name} has head dimension {d_head}: at most {MAX_HEAD_DIMENSION} is supported; {_ANY}"
        )
    if d_head > of_q or (d_head < of_q and name != "v"):
        exactly = "at most that of q" if name == "v" else "that of q"
        raise ValueError(
            f"{name} has head dimension {d_head}, but q has {of_q}: {exactly} is expected; {_PAD}"
        )
