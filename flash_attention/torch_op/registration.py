"""Makes the operations known to PyTorch, when flash_attention is imported."""

from . import kernels, recording, transforms


def register() -> None:
    """Once a process."""
    for part in (kernels, recording, transforms):
        part.register()
