"""Softmax scales that are not positive. The kernels take positive ones: their maximum of a row's
scores is also that of the scaled scores."""

import math
import numbers

import torch

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
