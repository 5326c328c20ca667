"""Scratch memory of serving calls.

Calls on one stream follow each other and can have the same; a captured graph may run beside them
and has its own.
"""

import torch

# By device and stream: as much as any call on it has needed. What is counted in stays by itself:
# it is zero between calls.
_OF_STREAM: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
_COUNTS = "arrivals"
# Words of a call, 16 MB, up to which others' are kept, too: to make them again took a fifth of what
# a small call of MLA costs the host (docs/results/serving-h200.md).
_MOST_KEPT = 2**22


def memory(words: dict[str, int], device: torch.device) -> dict[str, torch.Tensor]:
    """A tensor of so many words of 4 bytes for each name."""
    kept = _of_current_stream(device) if is_kept(words) else {}
    for name, size in words.items():
        if name not in kept or len(kept[name]) < size:
            make = torch.zeros if name == _COUNTS else torch.empty
            kept[name] = make(size, dtype=torch.float32, device=device)
    return {name: kept[name][:size] for name, size in words.items()}


def is_kept(words: dict[str, int]) -> bool:
    """Whether the next call on the stream has the same memory. That of kernels that count does not
    grow with the call."""
    return _COUNTS in words or sum(words.values()) <= _MOST_KEPT


def _of_current_stream(device: torch.device) -> dict[str, torch.Tensor]:
    """What is kept; of the CPU and of a capture, nothing."""
    if device.type == "cpu":
        return {}
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return {}
        key = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    return _OF_STREAM.setdefault(key, {})
