"""Scratch memory of serving calls.

Calls on one stream follow each other and can have the same; a captured graph may run beside them
and has its own.
"""

import torch

# By device and stream: as much as any call on it has needed. What is counted in stays by itself:
# it is zero between calls.
_OF_STREAM: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
_COUNTS = "arrivals"


def memory(words: dict[str, int], device: torch.device) -> dict[str, torch.Tensor]:
    """A tensor of so many words of 4 bytes for each name. Those of kernels that count are kept:
    they do not grow with the call."""
    kept = _of_current_stream(device) if _COUNTS in words else {}
    for name, size in words.items():
        if name not in kept or len(kept[name]) < size:
            make = torch.zeros if name == _COUNTS else torch.empty
            kept[name] = make(size, dtype=torch.float32, device=device)
    return {name: kept[name][:size] for name, size in words.items()}


def _of_current_stream(device: torch.device) -> dict[str, torch.Tensor]:
    """What is kept; of the CPU and of a capture, nothing."""
    if device.type == "cpu":
        return {}
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return {}
        key = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    return _OF_STREAM.setdefault(key, {})
