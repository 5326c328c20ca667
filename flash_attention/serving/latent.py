"""Queries of MLA: a part for the keys' elements that are their values, and one for those that are
rotated."""

import torch

from flash_helpers.kernels.serve_config import ROTATED_OF_LATENT

from ..checks.readable import readable
from ..checks.scale import with_positive_scale
from .tensors import as_batch, check_operand

VALUE_OF_LATENT = 512  # elements of a key that are its value


def with_latents(
    q: torch.Tensor, qv: object, softmax_scale: float | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor], int, float | None]:
    """q, the checked qv where there is one, the elements of a key, and a scale that is positive:
    both have its sign. qv is copied where a kernel cannot read it. Raises TypeError or
    ValueError."""
    d_head = q.shape[-1]
    latent = {}
    if qv is not None:
        qv = check_operand("qv", qv, q, (q.dim(),))
        if qv.shape[:-1] != q.shape[:-1]:
            raise ValueError(
                f"qv has shape {tuple(qv.shape)} and q {tuple(q.shape)}: only their head "
                "dimensions may differ"
            )
        if (d_head, qv.shape[-1]) != (ROTATED_OF_LATENT, VALUE_OF_LATENT):
            raise ValueError(
                f"q and qv have head dimensions {d_head} and {qv.shape[-1]}: with qv, expected "
                f"{ROTATED_OF_LATENT} and {VALUE_OF_LATENT}"
            )
        d_head += qv.shape[-1]
        qv, _ = with_positive_scale(qv, softmax_scale)
        latent = {"qv": readable(as_batch(qv)).view(qv.shape) if qv.numel() else qv}
    q, softmax_scale = with_positive_scale(q, softmax_scale)
    return q, latent, d_head, softmax_scale
