"""Where the elements of tensors lie: ranges of addresses, alignment, overlap."""

import torch

ALIGNMENT_BYTES = 16  # one cp.async, and one vector store
ALIGNMENT_ELEMENTS = ALIGNMENT_BYTES // 2


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first element and of the end of the last one."""
    begin = tensor.data_ptr()
    return begin, begin + _extent(tensor)


def check_storage(name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor without memory, or with less than its shape and strides
    need."""
    extent = _extent(tensor)
    if extent == 0:
        return
    needed = tensor.storage_offset() * tensor.element_size() + extent
    held = tensor.untyped_storage().nbytes() if tensor.data_ptr() else 0
    if held < needed:
        raise ValueError(
            f"{name} needs {needed} bytes of memory, and its storage has {held}: was it freed "
            "(untyped_storage().resize_)? Call before that, or pass a .clone() made before"
        )


def check_no_overlap(outputs: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]) -> None:
    """Raises ValueError if an output tensor shares memory with another tensor of the call: blocks
    write it while others still read."""
    ranges = {name: byte_range(tensor) for name, tensor in (inputs | outputs).items()}
    for name in outputs:
        begin, end = ranges[name]
        for other, (other_begin, other_end) in ranges.items():
            if other != name and begin < other_end and other_begin < end:
                raise ValueError(
                    f"{name} shares memory with {other}: the output must be a tensor of its own"
                )


def check_alignment(tensors: dict[str, torch.Tensor]) -> None:
    """Raises ValueError for a tensor that does not begin at a multiple of 16 bytes."""
    check_aligned({name: tensor.data_ptr() for name, tensor in tensors.items()})


def check_aligned(addresses: dict[str, int]) -> None:
    """`check_alignment`, for addresses."""
    for name, address in addresses.items():
        if address % ALIGNMENT_BYTES:
            raise ValueError(
                f"{name} starts at address {address:#x}: it must be aligned to {ALIGNMENT_BYTES} "
                "bytes; call .clone()"
            )


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int(last + 1) * tensor.element_size()
