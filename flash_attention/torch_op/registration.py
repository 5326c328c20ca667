"""Makes the operations known to PyTorch, when flash_attention is imported."""

from . import flops, kernels, recording, transforms


def register() -> None:
    """Once a process."""
    for part in (kernels, recording, transforms, flops):
        part.register()
