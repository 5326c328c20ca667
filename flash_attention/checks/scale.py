"""The softmax scale of a call. The kernels take positive ones: their maximum of a row's scores is
also that of the scaled scores."""

import math
import numbers
import struct

import torch

from flash_helpers.base.words import kind_of

# As good as 0: all weights of a row come out as 1, and the score -inf of a hidden key stays -inf.
_SMALLEST = 2.0**-100


def with_positive_scale(
    q: torch.Tensor, softmax_scale: float | None
) -> tuple[torch.Tensor, float | None]:
    """q and a scale that give the same scaled scores: -q, which is a copy, and the scale without
    its sign; for 0, which makes all weights of a row equal, one that is as good. What is no finite
    number, and what is no tensor of floats, is left for the checks to refuse."""
    given: object = softmax_scale
    if given is None or not isinstance(given, numbers.Real) or not isinstance(q, torch.Tensor):
        return q, softmax_scale
    scale = float(given)
    if scale >= _SMALLEST or not math.isfinite(scale) or not q.is_floating_point():
        return q, softmax_scale
    return (q, _SMALLEST) if scale > -_SMALLEST else (-q, -scale)


def scale_or_default(softmax_scale: float | None, d_head: int) -> float:
    """The softmax scale of a call, 1/sqrt(d) if none is given. Raises TypeError or ValueError."""
    if softmax_scale is None:
        return 1.0 / math.sqrt(d_head)
    given: object = softmax_scale
    if not isinstance(given, numbers.Real):  # nor a tensor, whose value may be on a GPU
        raise TypeError(f"softmax_scale is {kind_of(softmax_scale)}: expected a number or None")
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", softmax_scale))  # what the kernel gets
    except OverflowError:
        rounded = math.inf
    if not (math.isfinite(rounded) and rounded > 0):
        positive = "positive and " if math.isfinite(rounded) else ""
        raise ValueError(
            f"softmax_scale is {softmax_scale}: it must be {positive}finite in fp32; None "
            "stands for d_head ** -0.5"
        )
    return float(softmax_scale)
