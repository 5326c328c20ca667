"""Queries of MLA: a part for the keys' elements that are their values, and one for those that are
rotated."""

import torch

from flash_helpers.kernels.serve_config import ROTATED_OF_LATENT

from ..checks.readable import readable
from ..checks.scale import with_positive_scale
from .tensors import as_batch, check_operand

VALUE_OF_LATENT = 512  # elements of a key that are its value


def latents(
    q: torch.Tensor, qv: object, softmax_scale: float | None
) -> tuple[dict[str, torch.Tensor], int]:
    """The checked qv, copied where a kernel cannot read it, and of the sign of the scale, or
    nothing; and the elements of a key. Raises TypeError or ValueError."""
    if qv is None:
        return {}, q.shape[-1]
    qv = check_operand("qv", qv, q, (q.dim(),))
    if qv.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"qv has shape {tuple(qv.shape)} and q {tuple(q.shape)}: only their head dimensions "
            "may differ"
        )
    found = q.shape[-1], qv.shape[-1]
    if found != (ROTATED_OF_LATENT, VALUE_OF_LATENT):
        raise ValueError(
            f"q and qv have head dimensions {found[0]} and {found[1]}: with qv, expected "
            f"{ROTATED_OF_LATENT} and {VALUE_OF_LATENT}"
        )
    qv, _ = with_positive_scale(qv, softmax_scale)
    return {"qv": readable(as_batch(qv)).view(qv.shape) if qv.numel() else qv}, sum(found)
