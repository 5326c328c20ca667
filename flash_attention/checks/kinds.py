"""What kind of value an argument is: said in the same words by attention and by the operators."""

import torch

from flash_helpers.base.words import kind_of

_DEVICES = ("cuda", "cpu")


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
